// Regular expressions of Oniguruma, the library that Hugging Face's tokenizers uses.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace alibi::text::tokenizers {

/// Threads may share one object.
class Regex {
 public:
  /// Throws Error that begins with `where` if the expression is invalid.
  Regex(std::string_view expression, const std::string& where);
  /// An expression that matches this text literally.
  static Regex of_text(std::string_view text, const std::string& where);

  /// Calls take(begin, end) for each match, from left to right. Throws Error if the search exceeds its limits.
  void for_matches(std::string_view text, const std::function<void(size_t begin, size_t end)>& take) const;

 private:
  std::shared_ptr<void> compiled_;
  std::string where_;
};

}  // namespace alibi::text::tokenizers
