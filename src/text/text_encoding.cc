#include "text/text_encoding.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>

#include "text/tokenizers/unicode.h"

namespace alibi::text {
namespace {

bool is_control(unsigned char byte) {
  const bool layout = (byte >= '\b' && byte <= '\r') || byte == 0x1b;  // \b \t \n \v \f \r, and terminal escapes
  return (byte < 0x20 && !layout) || byte == 0x7f;
}

}  // namespace

size_t utf8_sequence_length(std::string_view text, size_t at) {
  const size_t length = tokenizers::character_at(text, at).length;
  return length > 1 || static_cast<unsigned char>(text[at]) < 0x80 ? length : 0;
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
      length = tokenizers::begun_length(rest_, at);
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
