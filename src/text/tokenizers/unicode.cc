#include "text/tokenizers/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <memory>
#include <new>

#include "core/check.h"

namespace alibi::text::tokenizers {
namespace {

constexpr int32_t kReplacement = 0xfffd;

struct CharacterRange {
  int32_t first, last;
};

// Hugging Face's library has older tables than utf8proc: Unicode 8 for punctuation, control characters and nonspacing
// marks, Unicode 9 for marks. It puts characters that were added later into none of these classes.
constexpr CharacterRange kAfterUnicode8[] = {
    {0x61d, 0x61d},     {0x7fd, 0x7fd},     {0x890, 0x891},     {0x898, 0x89f},     {0x8ca, 0x8e2},
    {0x9fd, 0x9fe},     {0xa76, 0xa76},     {0xafa, 0xaff},     {0xb55, 0xb55},     {0xc04, 0xc04},
    {0xc3c, 0xc3c},     {0xc77, 0xc77},     {0xc84, 0xc84},     {0xd00, 0xd00},     {0xd3b, 0xd3c},
    {0xd81, 0xd81},     {0xeba, 0xeba},     {0xece, 0xece},     {0x180f, 0x180f},   {0x1885, 0x1886},
    {0x1abf, 0x1ace},   {0x1b7d, 0x1b7e},   {0x1df6, 0x1dfb},   {0x2e43, 0x2e4f},   {0x2e52, 0x2e5d},
    {0xa82c, 0xa82c},   {0xa8c5, 0xa8c5},   {0xa8ff, 0xa8ff},   {0xa9bd, 0xa9bd},   {0x10d24, 0x10d27},
    {0x10eab, 0x10ead}, {0x10efd, 0x10eff}, {0x10f46, 0x10f50}, {0x10f55, 0x10f59}, {0x10f82, 0x10f89},
    {0x11070, 0x11070}, {0x11073, 0x11074}, {0x110c2, 0x110c2}, {0x110cd, 0x110cd}, {0x111c9, 0x111c9},
    {0x111cf, 0x111cf}, {0x1123e, 0x1123e}, {0x11241, 0x11241}, {0x1133b, 0x1133b}, {0x11438, 0x1143f},
    {0x11442, 0x11444}, {0x11446, 0x11446}, {0x1144b, 0x1144f}, {0x1145a, 0x1145b}, {0x1145d, 0x1145e},
    {0x11660, 0x1166c}, {0x116b9, 0x116b9}, {0x1182f, 0x11837}, {0x11839, 0x1183b}, {0x1193b, 0x1193c},
    {0x1193e, 0x1193e}, {0x11943, 0x11946}, {0x119d4, 0x119d7}, {0x119da, 0x119db}, {0x119e0, 0x119e0},
    {0x119e2, 0x119e2}, {0x11a01, 0x11a0a}, {0x11a33, 0x11a38}, {0x11a3b, 0x11a47}, {0x11a51, 0x11a56},
    {0x11a59, 0x11a5b}, {0x11a8a, 0x11a96}, {0x11a98, 0x11a9c}, {0x11a9e, 0x11aa2}, {0x11b00, 0x11b09},
    {0x11c30, 0x11c36}, {0x11c38, 0x11c3d}, {0x11c3f, 0x11c3f}, {0x11c41, 0x11c45}, {0x11c70, 0x11c71},
    {0x11c92, 0x11ca7}, {0x11caa, 0x11cb0}, {0x11cb2, 0x11cb3}, {0x11cb5, 0x11cb6}, {0x11d31, 0x11d36},
    {0x11d3a, 0x11d3a}, {0x11d3c, 0x11d3d}, {0x11d3f, 0x11d45}, {0x11d47, 0x11d47}, {0x11d90, 0x11d91},
    {0x11d95, 0x11d95}, {0x11d97, 0x11d97}, {0x11ef3, 0x11ef4}, {0x11ef7, 0x11ef8}, {0x11f00, 0x11f01},
    {0x11f36, 0x11f3a}, {0x11f40, 0x11f40}, {0x11f42, 0x11f4f}, {0x11fff, 0x11fff}, {0x12ff1, 0x12ff2},
    {0x13430, 0x13440}, {0x13447, 0x13455}, {0x16e97, 0x16e9a}, {0x16f4f, 0x16f4f}, {0x16fe2, 0x16fe2},
    {0x16fe4, 0x16fe4}, {0x1cf00, 0x1cf2d}, {0x1cf30, 0x1cf46}, {0x1e000, 0x1e006}, {0x1e008, 0x1e018},
    {0x1e01b, 0x1e021}, {0x1e023, 0x1e024}, {0x1e026, 0x1e02a}, {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136},
    {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef}, {0x1e4ec, 0x1e4ef}, {0x1e944, 0x1e94a}, {0x1e95e, 0x1e95f}};
constexpr CharacterRange kMarksAfterUnicode9[] = {
    {0x7fd, 0x7fd},     {0x898, 0x89f},     {0x8ca, 0x8d3},     {0x9fe, 0x9fe},     {0xafa, 0xaff},
    {0xb55, 0xb55},     {0xc04, 0xc04},     {0xc3c, 0xc3c},     {0xcf3, 0xcf3},     {0xd00, 0xd00},
    {0xd3b, 0xd3c},     {0xd81, 0xd81},     {0xeba, 0xeba},     {0xece, 0xece},     {0x1715, 0x1715},
    {0x180f, 0x180f},   {0x1abf, 0x1ace},   {0x1cf7, 0x1cf7},   {0x1df6, 0x1dfa},   {0xa82c, 0xa82c},
    {0xa8ff, 0xa8ff},   {0x10d24, 0x10d27}, {0x10eab, 0x10eac}, {0x10efd, 0x10eff}, {0x10f46, 0x10f50},
    {0x10f82, 0x10f85}, {0x11070, 0x11070}, {0x11073, 0x11074}, {0x110c2, 0x110c2}, {0x11145, 0x11146},
    {0x111c9, 0x111c9}, {0x111ce, 0x111cf}, {0x11241, 0x11241}, {0x1133b, 0x1133b}, {0x1145e, 0x1145e},
    {0x1182c, 0x1183a}, {0x11930, 0x11935}, {0x11937, 0x11938}, {0x1193b, 0x1193e}, {0x11940, 0x11940},
    {0x11942, 0x11943}, {0x119d1, 0x119d7}, {0x119da, 0x119e0}, {0x119e4, 0x119e4}, {0x11a01, 0x11a0a},
    {0x11a33, 0x11a39}, {0x11a3b, 0x11a3e}, {0x11a47, 0x11a47}, {0x11a51, 0x11a5b}, {0x11a8a, 0x11a99},
    {0x11d31, 0x11d36}, {0x11d3a, 0x11d3a}, {0x11d3c, 0x11d3d}, {0x11d3f, 0x11d45}, {0x11d47, 0x11d47},
    {0x11d8a, 0x11d8e}, {0x11d90, 0x11d91}, {0x11d93, 0x11d97}, {0x11ef3, 0x11ef6}, {0x11f00, 0x11f01},
    {0x11f03, 0x11f03}, {0x11f34, 0x11f3a}, {0x11f3e, 0x11f42}, {0x13440, 0x13440}, {0x13447, 0x13455},
    {0x16f4f, 0x16f4f}, {0x16f7f, 0x16f87}, {0x16fe4, 0x16fe4}, {0x16ff0, 0x16ff1}, {0x1cf00, 0x1cf2d},
    {0x1cf30, 0x1cf46}, {0x1e08f, 0x1e08f}, {0x1e130, 0x1e136}, {0x1e2ae, 0x1e2ae}, {0x1e2ec, 0x1e2ef},
    {0x1e4ec, 0x1e4ef}};

template <size_t n>
bool within(const CharacterRange (&ranges)[n], int32_t code) {
  const auto after = std::upper_bound(std::begin(ranges), std::end(ranges), code,
                                      [](int32_t value, const CharacterRange& range) { return value < range.first; });
  return after != std::begin(ranges) && code <= std::prev(after)->last;
}

bool is_ascii(char c) { return static_cast<unsigned char>(c) < 0x80; }

utf8proc_category_t category(int32_t code) { return utf8proc_category(code); }

const utf8proc_uint8_t* bytes_of(std::string_view text) {
  return reinterpret_cast<const utf8proc_uint8_t*>(text.data());
}

utf8proc_option_t options_of(NormalForm form) {
  const bool compose = form == NormalForm::nfc || form == NormalForm::nfkc;
  const bool compatible = form == NormalForm::nfkc || form == NormalForm::nfkd;
  return static_cast<utf8proc_option_t>(UTF8PROC_STABLE | (compose ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE) |
                                        (compatible ? UTF8PROC_COMPAT : 0));
}

}  // namespace

Character character_at(std::string_view text, size_t at) {
  if (is_ascii(text[at])) return {text[at], 1};
  utf8proc_int32_t code = 0;
  const auto left = static_cast<utf8proc_ssize_t>(std::min<size_t>(text.size() - at, 4));
  const utf8proc_ssize_t length = utf8proc_iterate(bytes_of(text) + at, left, &code);
  if (length <= 0) return {kReplacement, 1};
  return {code, static_cast<size_t>(length)};
}

size_t begun_length(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0u; };
  const unsigned first = byte(at), second = byte(at + 1);
  if (first < 0xc2 || first > 0xf4) return 0;
  const unsigned low = first == 0xe0 ? 0xa0 : first == 0xf0 ? 0x90 : 0x80;   // overlong
  const unsigned high = first == 0xed ? 0x9f : first == 0xf4 ? 0x8f : 0xbf;  // surrogates, above U+10FFFF
  if (first < 0xe0 || second < low || second > high) return 1;
  return first >= 0xf0 && (byte(at + 2) & 0xc0) == 0x80 ? 3 : 2;
}

size_t last_character(std::string_view text) {
  constexpr size_t longest = 4;
  const auto continues = [](char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; };
  size_t at = text.size() - 1;
  while (at > 0 && text.size() - at < longest && continues(text[at])) --at;
  return at + character_at(text, at).length == text.size() ? at : text.size() - 1;
}

size_t count_characters(std::string_view text) {
  size_t count = 0;
  for_characters(text, [&](int32_t, std::string_view) { ++count; });
  return count;
}

void append_character(std::string& text, int32_t code) {
  utf8proc_uint8_t bytes[4];
  const utf8proc_ssize_t length = utf8proc_encode_char(code, bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<size_t>(length));
}

std::string replace_malformed(std::string_view bytes) {
  std::string result;
  for (size_t at = 0; at < bytes.size();) {
    size_t length = character_at(bytes, at).length;
    if (length > 1 || is_ascii(bytes[at])) {
      result += bytes.substr(at, length);
    } else {
      append_character(result, kReplacement);
      length = std::max<size_t>(begun_length(bytes, at), 1);
    }
    at += length;
  }
  return result;
}

bool is_white_space(int32_t code) {
  if (code < 0x80) return code == ' ' || (code >= '\t' && code <= '\r');
  return code == 0x85 || code == 0xa0 || code == 0x1680 || (code >= 0x2000 && code <= 0x200a) || code == 0x2028 ||
         code == 0x2029 || code == 0x202f || code == 0x205f || code == 0x3000;
}

bool is_python_space(int32_t code) { return is_white_space(code) || (code >= 0x1c && code <= 0x1f); }

bool is_word_character(int32_t code) {
  if (code < 0x80) {
    return (code >= '0' && code <= '9') || (code >= 'A' && code <= 'Z') || (code >= 'a' && code <= 'z') || code == '_';
  }
  switch (category(code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_MC:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_PC:
      return true;
    default:
      // Letters in circles and squares, and the two that join.
      return (code >= 0x24b6 && code <= 0x24e9) || (code >= 0x1f130 && code <= 0x1f149) ||
             (code >= 0x1f150 && code <= 0x1f169) || (code >= 0x1f170 && code <= 0x1f189) || code == 0x200c ||
             code == 0x200d;
  }
}

bool is_number(int32_t code) {
  if (code < 0x80) return code >= '0' && code <= '9';
  const utf8proc_category_t kind = category(code);
  return kind == UTF8PROC_CATEGORY_ND || kind == UTF8PROC_CATEGORY_NL || kind == UTF8PROC_CATEGORY_NO;
}

bool is_punctuation(int32_t code) {
  if (code < 0x80) {
    return (code >= 0x21 && code <= 0x2f) || (code >= 0x3a && code <= 0x40) || (code >= 0x5b && code <= 0x60) ||
           (code >= 0x7b && code <= 0x7e);
  }
  const utf8proc_category_t kind = category(code);
  return kind >= UTF8PROC_CATEGORY_PC && kind <= UTF8PROC_CATEGORY_PO && !within(kAfterUnicode8, code);
}

bool is_control(int32_t code) {
  if (code < 0x80) return (code < ' ' && code != '\t' && code != '\n' && code != '\r') || code == 0x7f;
  const utf8proc_category_t kind = category(code);
  return kind >= UTF8PROC_CATEGORY_CC && kind <= UTF8PROC_CATEGORY_CO && !within(kAfterUnicode8, code);
}

bool is_mark(int32_t code) {
  if (code < 0x80) return false;
  const utf8proc_category_t kind = category(code);
  return kind >= UTF8PROC_CATEGORY_MN && kind <= UTF8PROC_CATEGORY_ME && !within(kMarksAfterUnicode9, code);
}

bool is_nonspacing_mark(int32_t code) {
  return code >= 0x80 && category(code) == UTF8PROC_CATEGORY_MN && !within(kAfterUnicode8, code);
}

bool is_chinese(int32_t code) {
  // The last but two starts 256 too high, as in Hugging Face's library.
  constexpr CharacterRange ranges[] = {{0x3400, 0x4dbf},   {0x4e00, 0x9fff},   {0xf900, 0xfaff},   {0x20000, 0x2a6df},
                                       {0x2a700, 0x2b73f}, {0x2b740, 0x2b81f}, {0x2b920, 0x2ceaf}, {0x2f800, 0x2fa1f}};
  return within(ranges, code);
}

std::string normalized(std::string_view text, NormalForm form) {
  std::string result;
  result.reserve(text.size());
  for (size_t at = 0; at < text.size();) {
    // ASCII does not change, except that the last ASCII character before other characters may combine with them. It
    // never combines with the text before it, so each run of other characters is normalized separately, a few bytes at
    // a time.
    size_t other = at;
    while (other < text.size() && is_ascii(text[other])) ++other;
    const size_t begin = other == text.size() ? other : std::max(at, other - std::min<size_t>(other, 1));
    result += text.substr(at, begin - at);
    size_t end = other;
    while (end < text.size() && !is_ascii(text[end])) ++end;
    if (begin < end) {
      utf8proc_uint8_t* form_of_run = nullptr;
      const std::string_view run = text.substr(begin, end - begin);
      const utf8proc_ssize_t length =
          utf8proc_map(bytes_of(run), static_cast<utf8proc_ssize_t>(run.size()), &form_of_run, options_of(form));
      const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(form_of_run, &std::free);
      if (length == UTF8PROC_ERROR_NOMEM) throw std::bad_alloc();
      check(length >= 0, "[tokenizer] the text cannot be normalized: {}", utf8proc_errmsg(length));
      result.append(reinterpret_cast<const char*>(form_of_run), static_cast<size_t>(length));
    }
    at = end;
  }
  return result;
}

std::string lower_case(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  for_characters(text, [&](int32_t code, std::string_view bytes) {
    if (code < 0x80) {
      result += static_cast<char>(code >= 'A' && code <= 'Z' ? code + ('a' - 'A') : code);
    } else if (code == 0x130) {
      result += "i\xcc\x87";  // the only character that becomes two: i and a dot above
    } else if (const int32_t lower = utf8proc_tolower(code); lower == code) {
      result += bytes;
    } else {
      append_character(result, lower);
    }
  });
  return result;
}

size_t grapheme_length(std::string_view text) {
  utf8proc_int32_t state = 0;
  Character character = character_at(text, 0);
  size_t at = character.length;
  while (at < text.size()) {
    const Character next = character_at(text, at);
    if (utf8proc_grapheme_break_stateful(character.code, next.code, &state)) break;
    character = next;
    at += next.length;
  }
  return at;
}

}  // namespace alibi::text::tokenizers
