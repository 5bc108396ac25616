// Strings that end a text which grows at its end.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace alibi::generation {

class StopStrings {
 public:
  /// Throws UsageError if one is empty.
  explicit StopStrings(std::vector<std::string> strings);

  /// Where the first of them begins in text, of which the first `known` bytes hold none.
  std::optional<size_t> find(std::string_view text, size_t known) const;
  /// How much of text no string can begin in any more, whatever follows.
  size_t settled(std::string_view text) const;

 private:
  std::vector<std::string> strings_;
  size_t longest_ = 0;
};

}  // namespace alibi::generation
