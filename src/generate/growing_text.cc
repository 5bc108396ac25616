#include "generate/growing_text.h"

#include <algorithm>
#include <span>
#include <utility>

#include "core/check.h"

namespace alibi::generation {

size_t whole_characters(std::string_view text, size_t from) {
  // The last lead byte is at most three bytes back. It determines the number of bytes of its character.
  for (size_t back = 1; back <= 3 && back <= text.size() - from; ++back) {
    const auto byte = static_cast<unsigned char>(text[text.size() - back]);
    if ((byte & 0xC0) == 0x80) continue;
    const size_t needed = byte >= 0xF0 && byte < 0xF8 ? 4 : byte >= 0xE0 ? 3 : byte >= 0xC0 ? 2 : 1;
    return byte < 0xF8 && needed > back ? text.size() - back : text.size();
  }
  return text.size();
}

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

std::optional<GenerationEnd> GrowingText::add(int32_t token) {
  // The text of a token may depend on the last shown token, for example a space between words.
  const int32_t both[] = {last_shown_, token};
  const size_t without = tokenizer_.decode(std::span(both).first(1)).size();
  const std::string with = tokenizer_.decode(both);
  const std::string added = with.substr(std::min(without, with.size()));
  if (!added.empty()) last_shown_ = token;
  const size_t known = text_.size();
  text_ += added;
  if (const std::optional<size_t> stop = stops_.find(text_, known)) {
    text_.resize(*stop);
    return GenerationEnd::stop;
  }
  const std::string_view settled = std::string_view(text_).substr(0, stops_.settled(text_));
  if (settled.size() > shown_) show_up_to(whole_characters(settled, shown_));
  return listens_ ? std::nullopt : std::optional(GenerationEnd::callback);
}

void GrowingText::show_up_to(size_t end) {
  if (!options_.on_text || !listens_ || end <= shown_) return;
  const size_t begin = std::exchange(shown_, end);
  listens_ = options_.on_text(std::string_view(text_).substr(begin, end - begin));
}

}  // namespace alibi::generation
