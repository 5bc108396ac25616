#include "report/markup.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace alibi::report {

namespace {

struct Character {
  uint32_t code = 0;
  size_t bytes = 1;
  bool valid = true;  ///< false for a byte that does not start a UTF-8 character; then code is its value
};

/// Decodes the character at `at`. Overlong forms, surrogates and codes above U+10FFFF are invalid (RFC 3629).
Character decode(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return static_cast<uint8_t>(text[i]); };
  const uint32_t lead = byte(at);
  const Character stray{lead, 1, false};
  if (lead < 0x80) return {lead, 1, true};
  const size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4 || at + length > text.size()) return stray;
  uint32_t code = lead & (0x7Fu >> length);
  for (size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return stray;
    code = code << 6 | (byte(at + i) & 0x3Fu);
  }
  const bool overlong = (length == 3 && code < 0x800) || (length == 4 && code < 0x10000);
  if (overlong || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return stray;
  return {code, length, true};
}

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
  switch (character[0]) {
    case '&':
      out += "&amp;";
      return;
    case '<':
      out += "&lt;";
      return;
    case '>':
      out += "&gt;";
      return;
    case '"':
      out += "&quot;";
      return;
    case '\'':
      out += "&#39;";
      return;
    default:
      out += character;
  }
}

/// Calls replace(character) for each character that must not be shown unchanged, and keep(bytes) for the rest.
template <class Replace, class Keep>
void for_characters(std::string_view text, const Replace& replace, const Keep& keep) {
  for (size_t at = 0; at < text.size();) {
    const Character character = decode(text, at);
    if (!character.valid || is_control(character.code) || is_unprintable(character.code)) {
      replace(character);
    } else {
      keep(text.substr(at, character.bytes));
    }
    at += character.bytes;
  }
}

template <class Replace>
std::string convert(std::string_view text, const Replace& replace) {
  std::string out;
  out.reserve(text.size() + text.size() / 8);
  for_characters(
      text, [&](const Character& character) { out += replace(character); },
      [&](std::string_view bytes) { append_escaped(out, bytes); });
  return out;
}

std::string code_of(const Character& character) {
  return character.code < 0x100 ? fmt::format("\\x{:02x}", character.code) : fmt::format("\\u{:04x}", character.code);
}

}  // namespace

std::string escape_markup(std::string_view text) {
  return convert(text, [](const Character&) { return "\uFFFD"; });
}

std::string visible_markup(std::string_view text) {
  return convert(
      text, [](const Character& character) { return fmt::format("<i class=\"byte\">{}</i>", code_of(character)); });
}

std::string visible_text(std::string_view text) {
  std::string out;
  for_characters(
      text, [&](const Character& character) { out += code_of(character); },
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

size_t count_characters(std::string_view text) {
  size_t count = 0;
  for (size_t at = 0; at < text.size(); at += decode(text, at).bytes) ++count;
  return count;
}

}  // namespace alibi::report
