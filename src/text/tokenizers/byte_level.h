// How byte-level tokenizers write each byte as a visible character: GPT-2's bytes_to_unicode.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace alibi::text::tokenizers {

/// Printable Latin-1 stands for itself, the other bytes take the code points from 256 on.
const std::array<std::string, 256>& byte_characters();
std::string to_byte_characters(std::string_view bytes);
/// Appends the bytes that a token stands for; a token with any other character stands for itself.
void append_bytes(std::string& bytes, std::string_view token);

}  // namespace alibi::text::tokenizers
