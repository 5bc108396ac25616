// The visible characters that byte-level tokenizers write for bytes: GPT-2's bytes_to_unicode.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace alibi::text::tokenizers {

/// Printable Latin-1 characters represent themselves. The other bytes use the code points from 256 on.
const std::array<std::string, 256>& byte_characters();
std::string to_byte_characters(std::string_view bytes);
/// Appends the bytes that a token represents. A token with any other character is appended unchanged.
void append_bytes(std::string& bytes, std::string_view token);

}  // namespace alibi::text::tokenizers
