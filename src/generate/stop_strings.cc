#include "generate/stop_strings.h"

#include <algorithm>
#include <utility>

#include "core/check.h"

namespace alibi::generation {

StopStrings::StopStrings(std::vector<std::string> strings) : strings_(std::move(strings)) {
  for (const std::string& string : strings_) {
    check_usage(!string.empty(), "[generate] a stop string is empty, expected at least one byte");
    longest_ = std::max(longest_, string.size());
  }
}

std::optional<size_t> StopStrings::find(std::string_view text, size_t known) const {
  const size_t from = known - std::min(known, longest_ > 0 ? longest_ - 1 : 0);
  size_t first = std::string_view::npos;
  for (const std::string& string : strings_) first = std::min(first, text.find(string, from));
  return first == std::string_view::npos ? std::nullopt : std::optional(first);
}

size_t StopStrings::settled(std::string_view text) const {
  for (size_t tail = std::min(text.size(), longest_ > 0 ? longest_ - 1 : 0); tail > 0; --tail) {
    const std::string_view end = text.substr(text.size() - tail);
    for (const std::string& string : strings_) {
      if (string.size() > tail && string.starts_with(end)) return text.size() - tail;
    }
  }
  return text.size();
}

}  // namespace alibi::generation
