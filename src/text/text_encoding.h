// Checks whether bytes are text.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace alibi::text {

/// Length of the well-formed UTF-8 sequence at `at`, or 0 if there is none. at < text.size(). Unicode 15, table 3-7: no
/// overlong forms, no surrogates, nothing above U+10FFFF.
size_t utf8_sequence_length(std::string_view text, size_t at);

/// Offsets of the bytes that are outside well-formed sequences, in rising order.
std::vector<size_t> malformed_bytes(std::string_view text);
/// The text with each of these bytes replaced by U+FFFD.
std::string well_formed(std::string_view text);

/// The reason why the bytes are not text, or an empty string if they are. Text has no NUL byte, and at most a tenth of
/// its bytes are control characters or outside well-formed UTF-8: stray bytes and Western text in an 8-bit encoding
/// pass, compressed files and programs do not.
std::string why_not_text(std::string_view bytes);

}  // namespace alibi::text
