#include "generate/growing_text.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "text/tokenizers/unicode.h"

namespace alibi::generation {

size_t whole_characters(std::string_view text, size_t from) {
  for (size_t back = 1; back <= 3 && back <= text.size() - from; ++back) {
    if (text::tokenizers::begun_length(text, text.size() - back) == back) return text.size() - back;
  }
  return text.size();
}

IncrementalDecoder::IncrementalDecoder(const Tokenizer& tokenizer, std::span<const int32_t> before)
    : tokenizer_(tokenizer) {
  constexpr size_t most_searched = 16;
  if (before.empty()) return;
  const auto searched = before.last(std::min(most_searched, before.size()));
  for (auto token = searched.rbegin(); token != searched.rend(); ++token) {
    begin_after(*token);
    if (last_bytes_ > 0) return;
  }
  begin_after(before.back());
}

void IncrementalDecoder::begin_after(int32_t token) {
  last_ = token;
  last_bytes_ = tokenizer_.decode(std::span(&token, 1)).size();
}

std::string IncrementalDecoder::peek(int32_t token) const {
  if (last_ < 0) return tokenizer_.decode(std::span(&token, 1));
  const int32_t both[] = {last_, token};
  const std::string with = tokenizer_.decode(both);
  return with.substr(std::min(last_bytes_, with.size()));
}

std::string IncrementalDecoder::add(int32_t token) {
  std::string added = peek(token);
  if (!added.empty()) begin_after(token);
  return added;
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
  const size_t known = text_.size();
  text_ += decoder_.add(token);
  unsettled_.push_back(known);
  const std::optional<size_t> stop = stops_.find(text_, known);
  const size_t end = stop ? *stop : stops_.settled(text_);
  // Without stop strings nothing can cut off a token, not even one without a text.
  while (!unsettled_.empty() && (unsettled_.front() < end || stops_.empty())) {
    unsettled_.pop_front();
    ++settled_tokens_;
  }
  if (stop) {
    text_.resize(*stop);
    return GenerationEnd::stop;
  }
  const std::string_view settled = std::string_view(text_).substr(0, end);
  if (settled.size() > shown_) show_up_to(whole_characters(settled, shown_));
  return listens_ ? std::nullopt : std::optional(GenerationEnd::callback);
}

void GrowingText::show_up_to(size_t end) {
  if (!options_.on_text || !listens_ || end <= shown_) return;
  const size_t begin = std::exchange(shown_, end);
  listens_ = options_.on_text(std::string_view(text_).substr(begin, end - begin));
}

}  // namespace alibi::generation
