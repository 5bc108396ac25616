// Streams of bytes that are shown while they grow.
#pragma once

#include <cstddef>
#include <string_view>

namespace alibi::generation {

/// End of the last whole UTF-8 character of text, looking no further back than `from`: what lies beyond may still be
/// completed. Bytes that can never become a character count as whole.
inline size_t whole_characters(std::string_view text, size_t from) {
  // The last lead byte, at most three bytes back, decides how many bytes its character needs.
  for (size_t back = 1; back <= 3 && back <= text.size() - from; ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;
    const size_t needed = byte >= 0xF0 && byte < 0xF8 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    return byte < 0xF8 && needed > back ? text.size() - back : text.size();
  }
  return text.size();
}

}  // namespace alibi::generation
