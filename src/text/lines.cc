#include "text/lines.h"

namespace alibi::text {

std::string with_line_feeds(std::string text, bool is_beginning) {
  size_t kept = 0;
  for (size_t at = is_beginning && text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0; at < text.size();
       ++at) {
    const bool ends_line = text[at] == '\r' && (at + 1 == text.size() || text[at + 1] == '\n');
    if (!ends_line) text[kept++] = text[at];
  }
  text.resize(kept);
  return text;
}

bool is_blank(std::string_view line) { return line.find_first_not_of(" \t\r\f\v") == std::string_view::npos; }

}  // namespace alibi::text
