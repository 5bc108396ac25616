// The normalization rules of SentencePiece, as stored in its models and in Hugging Face's "Precompiled".
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace alibi::text::tokenizers {

/// A double array of Darts-clone, and the texts that its values point into. Both are checked before use.
class Charsmap {
 public:
  /// Throws Error that begins with `where` if the sizes are inconsistent.
  Charsmap(std::string_view bytes, const std::string& where);

  /// The replacement of the longest matching rule at the beginning of the text, and the number of bytes that it
  /// replaces.
  std::optional<std::pair<std::string_view, size_t>> longest(std::string_view text) const;
  /// The replacement of the shortest matching rule.
  std::optional<std::string_view> shortest(std::string_view text) const;

 private:
  template <class Take>
  void for_prefixes(std::string_view text, const Take& take) const;

  std::vector<uint32_t> units_;
  std::string texts_;  ///< each ends with a NUL
};

/// Throws Error that begins with `where` if a character is invalid.
std::string from_base64(std::string_view text, const std::string& where);

}  // namespace alibi::text::tokenizers
