// Lines of a text, whichever system wrote it.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

namespace alibi::text {

inline constexpr std::string_view kByteOrderMark = "\xef\xbb\xbf";

/// The text with line feeds as line ends: without a byte order mark at its beginning, and without the carriage returns
/// before line feeds and at its end. Every command that reads lines uses it. `is_beginning` is false for a later part
/// of a text.
std::string with_line_feeds(std::string text, bool is_beginning = true);

/// Calls use(line, number) for each line, numbered from 1, without its line feed.
template <class Use>
void each_line(std::string_view text, const Use& use) {
  int64_t number = 0;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size());
    use(text.substr(begin, end - begin), ++number);
    begin = end + 1;
  }
}

/// Whether a line has nothing but spaces and the like.
bool is_blank(std::string_view line);

}  // namespace alibi::text
