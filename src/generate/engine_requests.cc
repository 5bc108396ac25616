#include "generate/engine_requests.h"

#include <algorithm>
#include <numeric>
#include <utility>

namespace alibi {

void Engine::Handle::State::end(EngineResult value, const std::exception_ptr& why) noexcept {
  {
    const std::lock_guard lock(mutex);
    result = std::move(value);
    failure = why;
    if (!failure && result.samples.empty()) {  // it was cancelled before the end of its prompt
      EngineSample empty;
      empty.generation.end = GenerationEnd::callback;
      result.samples.resize(static_cast<size_t>(request.samples), empty);
    }
  }
  // Once `has_ended` is set, wait() returns, and the caller may destroy what on_done uses.
  try {
    if (request.on_done) request.on_done(failure ? nullptr : &result, failure);
  } catch (...) {  // wait() throws it
    const std::lock_guard lock(mutex);
    failure = std::current_exception();
  }
  // What the functions hold may hold a handle of this request.
  request.on_event = nullptr;
  request.on_done = nullptr;
  {
    const std::lock_guard lock(mutex);
    has_ended = true;
  }
  ended.notify_all();
}

Engine::Handle::Handle(std::shared_ptr<State> state) : state_(std::move(state)) {}

const EngineResult& Engine::Handle::wait() const {
  std::unique_lock lock(state_->mutex);
  state_->ended.wait(lock, [this] { return state_->has_ended; });
  if (state_->failure) std::rethrow_exception(state_->failure);
  return state_->result;
}

bool Engine::Handle::wait_for(double seconds) const {
  std::unique_lock lock(state_->mutex);
  return state_->ended.wait_for(lock, std::chrono::duration<double>(seconds), [this] { return state_->has_ended; });
}

void Engine::Handle::cancel() const {
  state_->cancelled = true;
  state_->wake();
}

}  // namespace alibi

namespace alibi::generation {

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

EngineText::EngineText(const LanguageModel& model, const EngineRequest& request, int64_t sample, Context context)
    : request_(request),
      sample_(sample),
      context_(std::move(context)),
      options_(request.options),
      drawn_(model, request.prompt, options_, sample) {
  options_.on_token = {};
  options_.on_text = [this](std::string_view more) {
    piece_ += more;
    return true;
  };
}

void EngineText::draw(const Logits& logits) {
  next_ = drawn_.draw({logits.row.begin(), logits.row.end()});
  EngineToken token{.id = next_};
  if (request_.logprobs) token = logits.token(next_, *request_.logprobs);
  tokens_.push_back(std::move(token));
  report(next_);
}

void EngineText::end_without_tokens() { report({}); }

void EngineText::report(std::optional<int32_t> drawn) {
  EngineEvent event{.sample = sample_, .drawn = drawn};
  if (!goes_on()) {
    drawn_.show_rest();
    event.end = drawn_.end();
  }
  event.text = std::exchange(piece_, {});
  const auto in_text = static_cast<size_t>(drawn_.tokens_in_text());
  for (; reported_ < (event.end ? tokens_.size() : in_text); ++reported_) {
    tokens_[reported_].in_text = reported_ < in_text;
    if (request_.on_event) event.tokens.push_back(tokens_[reported_]);
  }
  if (request_.on_event) request_.on_event(event);
}

EngineSample EngineText::finish() {
  EngineSample sample;
  sample.generation.text = drawn_.take();
  sample.generation.tokens = drawn_.tokens();
  sample.generation.end = drawn_.end();
  sample.generation.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start_).count();
  sample.generation.cache_bytes = context_.bytes();
  sample.generation.shared_bytes = context_.shared_bytes();
  sample.generation.certificate = context_.certificate();
  sample.tokens = std::move(tokens_);
  return sample;
}

bool EngineJob::goes_on() const {
  return is_reading() || std::any_of(texts.begin(), texts.end(), [](const auto& text) { return text->goes_on(); });
}

}  // namespace alibi::generation
