// Where text may be cut without any tokenizer noticing.
#pragma once

#include <cstddef>
#include <string_view>

namespace alibi::text {

/// No unit is longer.
inline constexpr size_t kMaxUnit = 4096;

/// Length of the unit with which the text begins: its first line with the line feed, but of a line of more than
/// kMaxUnit bytes only the part before a space, or, where there is none, about as many bytes in whole characters.
/// Tokenizers encode unit by unit, so a text that is cut between units
/// and encoded in parts gives the same ids. 0 for no text.
size_t unit_length(std::string_view text);

/// Length of the whole units at the beginning of the text that have at least `least` bytes together, if it has so
/// many, and not more than kMaxUnit bytes more.
size_t units_length(std::string_view text, size_t least);

}  // namespace alibi::text
