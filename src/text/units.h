// Places where a text may be split without changing its tokens.
#pragma once

#include <cstddef>
#include <string_view>

namespace alibi::text {

/// Maximum length of a unit.
inline constexpr size_t kMaxUnit = 4096;

/// Length of the first unit of the text: its first line with the line feed. If the line has more than kMaxUnit bytes,
/// the unit is the part before a space or, without a space, about kMaxUnit bytes in whole characters. Tokenizers encode
/// unit by unit, so a text that is split between units and encoded in parts gives the same ids. Returns 0 for an empty
/// text.
size_t unit_length(std::string_view text);

/// Length of the first units of the text that together have at least `least` bytes (if the text has that many), and at
/// most kMaxUnit bytes more.
size_t units_length(std::string_view text, size_t least);

}  // namespace alibi::text
