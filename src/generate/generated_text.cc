#include "generate/generated_text.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "core/check.h"
#include "core/clock.h"
#include "generate/sampling.h"
#include "text/tokenizers/unicode.h"

namespace alibi::generation {
namespace {

size_t longest(std::span<const std::string> stops) {
  size_t size = 0;
  for (const std::string& stop : stops) size = std::max(size, stop.size());
  return size;
}

}  // namespace

size_t whole_characters(std::string_view text, size_t from) {
  for (size_t back = 1; back <= 3 && back <= text.size() - from; ++back) {
    if (text::tokenizers::begun_length(text, text.size() - back) == back) return text.size() - back;
  }
  return text.size();
}

IncrementalDecoder::IncrementalDecoder(const Tokenizer& tokenizer, std::span<const int32_t> before)
    : tokenizer_(tokenizer) {
  constexpr size_t max_searched = 16;
  if (before.empty()) return;
  const auto searched = before.last(std::min(max_searched, before.size()));
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

std::optional<size_t> find_stop(std::span<const std::string> stops, std::string_view text, size_t known) {
  const size_t from = known - std::min(known, std::max<size_t>(longest(stops), 1) - 1);
  size_t first = std::string_view::npos;
  for (const std::string& stop : stops) first = std::min(first, text.find(stop, from));
  return first == std::string_view::npos ? std::nullopt : std::optional(first);
}

size_t length_without_stop(std::span<const std::string> stops, std::string_view text) {
  for (size_t tail = std::min(text.size(), std::max<size_t>(longest(stops), 1) - 1); tail > 0; --tail) {
    const std::string_view end = text.substr(text.size() - tail);
    for (const std::string& stop : stops) {
      if (stop.size() > tail && stop.starts_with(end)) return text.size() - tail;
    }
  }
  return text.size();
}

std::optional<int32_t> end_of_text(const LanguageModel& model) {
  if (!model.has_tokenizer()) return std::nullopt;
  try {
    return model.tokenizer().end_of_text();
  } catch (const Error&) {
    return std::nullopt;
  }
}

EngineToken Logits::token(int32_t id, int64_t count) const {
  EngineToken token{.id = id, .logprob = logprob(id)};
  std::vector<int32_t> ids(row.size());
  std::iota(ids.begin(), ids.end(), 0);
  const auto last = ids.begin() + std::min(count, std::ssize(ids));
  std::partial_sort(ids.begin(), last, ids.end(), [&](int32_t a, int32_t b) {
    const float x = row[static_cast<size_t>(a)], y = row[static_cast<size_t>(b)];
    return x != y ? x > y : a < b;
  });
  for (auto at = ids.begin(); at != last; ++at) token.top.push_back({*at, logprob(*at)});
  return token;
}

GeneratedText::GeneratedText(const LanguageModel& model, const EngineRequest& request, int64_t sample, bool has_text)
    : request_(request),
      options_(request.options),
      sample_(sample),
      random_(options_.seed, core::mix(0x9e4e, static_cast<uint64_t>(sample))) {
  if (has_text && model.has_tokenizer()) {
    const Tokenizer& tokenizer = model.tokenizer();
    decoder_.emplace(tokenizer, request.prompt);
    end_of_text_ = generation::end_of_text(model).value_or(-1);
    stops_ = options_.stop_at_end_of_text && !tokenizer.end_of_text_ends_lines();
    never_ = stops_ || tokenizer.end_of_text_ends_lines() ? -1 : end_of_text_;
  }
  const size_t begins = request.prompt.front() == end_of_text_ ? 1 : 0;
  penalties_.emplace(options_, std::span(request.prompt).subspan(begins));
}

void GeneratedText::draw(const Logits& logits) {
  check_logits(logits.row);
  const int32_t token = sample_token(penalties_->apply(logits.row), options_, random_, tokens_.size(), never_);
  penalties_->add(token);
  tokens_.push_back(request_.logprobs ? logits.token(token, *request_.logprobs) : EngineToken{.id = token});
  last_draw_ = core::Clock::now();
  const bool wanted = !options_.on_token || options_.on_token(token);
  if (token == end_of_text_ && stops_) {
    end_ = GenerationEnd::end_of_text;
  } else if (decoder_) {
    end_ = append(token);
  }
  if (!end_ && !wanted) end_ = GenerationEnd::callback;
  report(token);
}

/// Returns the reason if the text ends with this token.
std::optional<GenerationEnd> GeneratedText::append(int32_t token) {
  const size_t known = text_.size();
  text_ += decoder_->add(token);
  unsettled_.push_back(known);
  const std::optional<size_t> stop = find_stop(options_.stop, text_, known);
  const size_t end = stop ? *stop : length_without_stop(options_.stop, text_);
  // Without stop strings nothing can cut off a token, not even one without a text.
  while (!unsettled_.empty() && (unsettled_.front() < end || options_.stop.empty())) {
    unsettled_.pop_front();
    ++settled_;
  }
  if (stop) {
    text_.resize(*stop);
    return GenerationEnd::stop;
  }
  show(whole_characters(std::string_view(text_).substr(0, end), std::min(shown_, end)));
  return listens_ ? std::nullopt : std::optional(GenerationEnd::callback);
}

void GeneratedText::show(size_t end) {
  if (!listens_ || end <= shown_) return;
  const std::string_view piece = std::string_view(text_).substr(shown_, end - shown_);
  shown_ = end;
  if (options_.on_text) listens_ = options_.on_text(piece);
}

/// Number of drawn tokens, from the first one on, that are known to be a part of the text: not the end of the text,
/// and not behind the beginning of a stop string. At the end, all such tokens.
size_t GeneratedText::tokens_in_text() const {
  if (decoder_ && (goes_on() || end_ == GenerationEnd::stop)) return settled_;
  return tokens_.size() - (end_ == GenerationEnd::end_of_text ? 1 : 0);
}

/// Shows the text that was held back if this is the end, and passes what is new to on_event.
void GeneratedText::report(std::optional<int32_t> drawn) {
  EngineEvent event{.sample = sample_, .drawn = drawn};
  if (!goes_on()) {
    show(text_.size());
    event.end = end_.value_or(GenerationEnd::tokens);
  }
  const size_t in_text = tokens_in_text();
  for (; reported_ < (event.end ? tokens_.size() : in_text); ++reported_) {
    tokens_[reported_].in_text = reported_ < in_text;
    if (request_.on_event) event.tokens.push_back(tokens_[reported_]);
  }
  if (!request_.on_event) return;
  event.text = text_.substr(reported_text_, shown_ - reported_text_);
  reported_text_ = shown_;
  request_.on_event(event);
}

EngineSample GeneratedText::finish() {
  EngineSample sample;
  sample.generation.text = std::move(text_);
  sample.generation.tokens = std::ssize(tokens_);
  sample.generation.end = end_.value_or(GenerationEnd::tokens);
  sample.generation.seconds = core::seconds_between(start_, last_draw_);
  sample.tokens = std::move(tokens_);
  return sample;
}

}  // namespace alibi::generation
