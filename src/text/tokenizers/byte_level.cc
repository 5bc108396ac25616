#include "text/tokenizers/byte_level.h"

#include <algorithm>

#include "text/tokenizers/unicode.h"

namespace alibi::text::tokenizers {
namespace {

constexpr int32_t kCodes = 256 + 68;  // 68 bytes are not printable

struct ByteTable {
  std::array<std::string, 256> characters;
  std::array<int, kCodes> bytes;
};

const ByteTable& byte_table() {
  static const ByteTable* const table = [] {
    auto* made = new ByteTable;
    made->bytes.fill(-1);
    int32_t next = 256;
    for (int32_t byte = 0; byte < 256; ++byte) {
      const bool visible = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
      const int32_t code = visible ? byte : next++;
      append_character(made->characters[static_cast<size_t>(byte)], code);
      made->bytes[static_cast<size_t>(code)] = byte;
    }
    return made;
  }();
  return *table;
}

}  // namespace

const std::array<std::string, 256>& byte_characters() { return byte_table().characters; }

std::string to_byte_characters(std::string_view bytes) {
  const ByteTable& table = byte_table();
  std::string text;
  text.reserve(bytes.size() + bytes.size() / 2);
  for (const char byte : bytes) text += table.characters[static_cast<unsigned char>(byte)];
  return text;
}

void append_bytes(std::string& bytes, std::string_view token) {
  const ByteTable& table = byte_table();
  const size_t before = bytes.size();
  bool all = true;
  for_characters(token, [&](int32_t code, std::string_view) {
    const int byte = code < kCodes ? table.bytes[static_cast<size_t>(code)] : -1;
    all &= byte >= 0;
    if (all) bytes += static_cast<char>(byte);
  });
  if (!all) bytes.replace(before, std::string::npos, token);
}

}  // namespace alibi::text::tokenizers
