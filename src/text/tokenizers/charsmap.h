// The rules by which SentencePiece normalizes text, as its models and Hugging Face's "Precompiled" hold them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace alibi::text::tokenizers {

/// A double array of Darts-clone and the texts that its values point into. Neither is trusted.
class Charsmap {
 public:
  /// Throws Error that begins with `where` if the sizes do not fit together.
  Charsmap(std::string_view bytes, const std::string& where);

  /// The replacement of the longest rule with which the text begins, and how many bytes it takes the place of.
  std::optional<std::pair<std::string_view, size_t>> longest(std::string_view text) const;
  /// The replacement of the shortest one.
  std::optional<std::string_view> shortest(std::string_view text) const;

 private:
  template <class Take>
  void for_prefixes(std::string_view text, const Take& take) const;

  std::vector<uint32_t> units_;
  std::string texts_;  ///< each ends with a NUL
};

/// Throws Error that begins with `where` for other characters.
std::string from_base64(std::string_view text, const std::string& where);

}  // namespace alibi::text::tokenizers
