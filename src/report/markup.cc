#include "report/markup.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <utility>

#include "text/tokenizers/unicode.h"

namespace alibi::report {

namespace {

bool is_control(uint32_t code) {
  return (code < 0x20 && code != '\n' && code != '\t') || (code >= 0x7F && code < 0xA0);
}

/// Characters that are invisible or change the direction of the text after them, and non-characters.
bool is_unprintable(uint32_t code) {
  const auto within = [code](uint32_t first, uint32_t last) { return code >= first && code <= last; };
  return within(0x200B, 0x200F) || within(0x2028, 0x202E) || within(0x2060, 0x206F) || code == 0xFEFF ||
         within(0xFDD0, 0xFDEF) || (code & 0xFFFE) == 0xFFFE;
}

void append_escaped(std::string& out, std::string_view character) {
  static constexpr std::pair<char, std::string_view> entities[] = {
      {'&', "&amp;"}, {'<', "&lt;"}, {'>', "&gt;"}, {'"', "&quot;"}, {'\'', "&#39;"}};
  for (const auto& [plain, entity] : entities) {
    if (character[0] == plain) {
      out += entity;
      return;
    }
  }
  out += character;
}

/// Calls replace(code) for each character that must not be shown unchanged, or with the byte that is in none, and
/// keep(bytes) for the rest.
template <class Replace, class Keep>
void for_characters(std::string_view text, const Replace& replace, const Keep& keep) {
  text::tokenizers::for_characters(text, [&](int32_t character, std::string_view bytes) {
    const auto first = static_cast<uint8_t>(bytes[0]);
    const bool stray = bytes.size() == 1 && first >= 0x80;
    const uint32_t code = stray ? first : static_cast<uint32_t>(character);
    stray || is_control(code) || is_unprintable(code) ? replace(code) : keep(bytes);
  });
}

std::string code_of(uint32_t code) {
  return code < 0x100 ? fmt::format("\\x{:02x}", code) : fmt::format("\\u{:04x}", code);
}

}  // namespace

std::string escape_markup(std::string_view text) {
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  for_characters(
      text, [&](uint32_t) { out += "\uFFFD"; }, [&](std::string_view bytes) { append_escaped(out, bytes); });
  return out;
}

std::string visible_text(std::string_view text) {
  std::string out;
  for_characters(
      text, [&](uint32_t code) { out += code_of(code); },
      [&](std::string_view bytes) { out += bytes == "\n"   ? "\\n"
                                           : bytes == "\t" ? "\\t"
                                                           : bytes; });
  return out;
}

size_t character_start(std::string_view text, size_t position) {
  position = std::min(position, text.size());
  for (int i = 0; i < 3 && position < text.size() && (static_cast<uint8_t>(text[position]) & 0xC0) == 0x80; ++i) {
    ++position;
  }
  return position;
}

}  // namespace alibi::report
