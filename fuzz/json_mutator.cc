#include "json_mutator.h"

#include <algorithm>
#include <cstddef>
#include <iterator>
#include <random>
#include <vector>

namespace alibi::fuzz {
namespace {

bool is_plain(char c) {
  return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '-' || c == '+' || c == '.';
}

/// Strings with their quotes, numbers, true, false and null.
std::vector<std::string_view> tokens_of(std::string_view text) {
  std::vector<std::string_view> tokens;
  size_t at = std::min(text.find('{'), text.size());
  while (at < text.size()) {
    size_t end = at;
    if (text[at] == '"') {
      for (++end; end < text.size() && text[end] != '"'; ++end) end += text[end] == '\\';
      end = std::min(end + 1, text.size());
    } else {
      while (end < text.size() && is_plain(text[end])) ++end;
    }
    if (end > at) tokens.push_back(text.substr(at, end - at));
    at = std::max(end, at + 1);
  }
  return tokens;
}

constexpr std::string_view kValues[] = {
    "0",          "1",           "-1",
    "2",          "8",           "0.5",
    "1e999",      "1e-320",      "-0.0",
    "null",       "true",        "false",
    "[]",         "{}",          "\"\"",
    "[0]",        "[1,2]",       "4096",
    "257",        "65536",       "2147483647",
    "4294967296", "99999999999", "[[[[[[]]]]]]",
    "[0,0,0]",    "10000",       "9223372036854775807",
};

}  // namespace

std::string mutate_json(std::string_view text, unsigned seed) {
  std::minstd_rand random(seed);
  const std::vector<std::string_view> tokens = tokens_of(text);
  if (tokens.empty()) return std::string(text);
  const auto any = [&](size_t count) { return static_cast<size_t>(random()) % count; };
  const std::string_view old = tokens[any(tokens.size())];
  const auto before = static_cast<size_t>(old.data() - text.data());
  std::string now;
  switch (any(5)) {
    case 0:  // what stands elsewhere
      now = tokens[any(tokens.size())];
      break;
    case 1:
      now = kValues[any(std::size(kValues))];
      break;
    case 2:  // another number: a digit changed or added
      now = old;
      now.insert(any(now.size() + 1), 1, static_cast<char>('0' + any(10)));
      if (any(2) == 0 && now.size() > 1) now.erase(any(now.size()), 1);
      break;
    case 3:  // one element more
      now = std::string(old) + "," + std::string(old);
      break;
    default: {  // one less, with what parts it from the next
      const size_t next = text.find_first_of(",}]", before + old.size());
      std::string result(text.substr(0, before));
      return result.append(next == std::string_view::npos ? "" : text.substr(next + (text[next] == ',')));
    }
  }
  std::string result(text.substr(0, before));
  return result.append(now).append(text.substr(before + old.size()));
}

}  // namespace alibi::fuzz
