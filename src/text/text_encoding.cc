#include "text/text_encoding.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

namespace alibi::text {
namespace {

bool is_control(unsigned char byte) {
  const bool layout = (byte >= '\b' && byte <= '\r') || byte == 0x1b;  // \b \t \n \v \f \r, and terminal escapes
  return (byte < 0x20 && !layout) || byte == 0x7f;
}

}  // namespace

size_t utf8_sequence_length(std::string_view text, size_t at) {
  const auto byte = [&](size_t i) -> unsigned { return i < text.size() ? static_cast<unsigned char>(text[i]) : 0; };
  const auto between = [&](size_t i, unsigned low, unsigned high) { return byte(i) >= low && byte(i) <= high; };
  const auto continues = [&](size_t i) { return between(i, 0x80, 0xbf); };
  const unsigned first = byte(at);
  if (first < 0x80) return 1;
  if (first >= 0xc2 && first <= 0xdf) return continues(at + 1) ? 2 : 0;
  if (first >= 0xe0 && first <= 0xef) {
    const unsigned low = first == 0xe0 ? 0xa0 : 0x80;   // overlong
    const unsigned high = first == 0xed ? 0x9f : 0xbf;  // surrogates
    return between(at + 1, low, high) && continues(at + 2) ? 3 : 0;
  }
  if (first >= 0xf0 && first <= 0xf4) {
    const unsigned low = first == 0xf0 ? 0x90 : 0x80;   // overlong
    const unsigned high = first == 0xf4 ? 0x8f : 0xbf;  // above U+10FFFF
    return between(at + 1, low, high) && continues(at + 2) && continues(at + 3) ? 4 : 0;
  }
  return 0;
}

int64_t CharacterCount::add(std::string_view more) {
  if (more.empty()) return count_;
  extend(more.substr(0, 1));
  const int64_t first = rest_.empty() ? count_ - 1 : count_;
  extend(more.substr(1));
  return first;
}

void CharacterCount::extend(std::string_view more) {
  rest_ += more;
  size_t at = 0;
  while (at < rest_.size()) {
    size_t length = utf8_sequence_length(rest_, at);
    if (length == 0) {
      // The longest part that is the beginning of a sequence: one of these endings makes it a whole one.
      const auto begins = [&](size_t bytes) {
        for (const char* rest : {"\x80", "\x80\x80", "\xa0\x80", "\x80\x80\x80", "\x90\x80\x80"}) {
          if (utf8_sequence_length(rest_.substr(at, bytes) + rest, 0) > bytes) return true;
        }
        return false;
      };
      while (length < rest_.size() - at && begins(length + 1)) ++length;
      if (length > 0 && at + length == rest_.size()) break;  // the next bytes may complete it
      length = std::max<size_t>(length, 1);
    }
    ++count_;
    at += length;
  }
  rest_.erase(0, at);
}

std::vector<size_t> malformed_bytes(std::string_view text) {
  std::vector<size_t> places;
  for (size_t at = 0; at < text.size();) {
    const size_t length = utf8_sequence_length(text, at);
    if (length == 0) places.push_back(at);
    at += std::max<size_t>(length, 1);
  }
  return places;
}

std::string well_formed(std::string_view text) {
  std::string result;
  size_t copied = 0;
  for (const size_t at : malformed_bytes(text)) {
    result.append(text, copied, at - copied).append("\xef\xbf\xbd");
    copied = at + 1;
  }
  return result.append(text, copied);
}

std::string why_not_text(std::string_view bytes) {
  if (const size_t nul = bytes.find('\0'); nul != std::string_view::npos) {
    return fmt::format("byte {} is NUL", nul);
  }
  uint64_t strange = 0;
  for (size_t at = 0; at < bytes.size();) {
    const size_t length = utf8_sequence_length(bytes, at);
    if (length == 0 || (length == 1 && is_control(static_cast<unsigned char>(bytes[at])))) ++strange;
    at += length == 0 ? 1 : length;
  }
  if (strange * 10 <= bytes.size()) return {};
  return fmt::format("{} of its {} bytes are control characters or not UTF-8", strange, bytes.size());
}

}  // namespace alibi::text
