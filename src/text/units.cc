#include "text/units.h"

#include "text/text_encoding.h"

namespace alibi::text {

size_t unit_length(std::string_view text) {
  const std::string_view head = text.substr(0, kMaxUnit);
  const size_t newline = head.find('\n');
  if (newline != std::string_view::npos) return newline + 1;
  if (text.size() <= kMaxUnit) return text.size();
  // A space that does not follow another space, so that a run of spaces can still be one token.
  for (size_t at = kMaxUnit - 1; at > kMaxUnit / 2; --at) {
    if (head[at] == ' ' && head[at - 1] != ' ') return at;
  }
  for (size_t back = 1; back <= 3; ++back) {
    const size_t length = utf8_sequence_length(text, kMaxUnit - back);
    if (length > back) return kMaxUnit - back;
  }
  return kMaxUnit;
}

size_t units_length(std::string_view text, size_t least) {
  if (text.size() <= least) return text.size();
  // A unit begins after every line feed, so no search is needed.
  const size_t newline = text.substr(0, least).rfind('\n');
  size_t length = newline == std::string_view::npos ? 0 : newline + 1;
  while (length < least) length += unit_length(text.substr(length));
  return length;
}

}  // namespace alibi::text
