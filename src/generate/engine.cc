#include "alibi/engine.h"

#include <algorithm>
#include <optional>
#include <thread>
#include <utility>

#include "core/access.h"
#include "core/check.h"
#include "core/clock.h"
#include "core/memory.h"
#include "core/system.h"
#include "generate/generation_loop.h"
#include "generate/sampling.h"
#include "model/position.h"

namespace alibi {
namespace {

using generation::GenerationJob;
/// An engine without requests for this long gives its temporary memory back.
constexpr std::chrono::seconds time_until_idle{1};

void check_options(const LanguageModel& model, const EngineOptions& options) {
  check_usage(options.slots >= 1, "[engine] slots is {}, expected at least 1", options.slots);
  check_usage(options.chunk_tokens >= 1 && options.chunk_tokens <= 2048,
              "[engine] chunk_tokens is {}, expected 1 to 2048", options.chunk_tokens);
  check_usage(options.step_tokens - options.chunk_tokens >= options.slots,
              "[engine] step_tokens is {}, expected at least slots ({}) + chunk_tokens ({})", options.step_tokens,
              options.slots, options.chunk_tokens);
  check_usage(options.queue >= 0 && options.max_tokens >= 0 && options.prefix_bytes >= 0,
              "[engine] queue is {}, max_tokens is {} and prefix_bytes is {}, expected at least 0", options.queue,
              options.max_tokens, options.prefix_bytes);
  Context(model, options.context);  // throws if the model cannot have it
}

/// The options with chunks that a context can read at once.
EngineOptions loop_options(const LanguageModel& model, EngineOptions options) {
  options.chunk_tokens = std::min(options.chunk_tokens, model::max_tokens(Context(model, options.context)));
  return options;
}

}  // namespace

struct [[gnu::visibility("hidden")]] Engine::Handle::State : generation::RequestState {
  std::function<void()> wake;  // makes the engine look at `cancelled`
};

struct [[gnu::visibility("hidden")]] Engine::State {
  State(const LanguageModel& model_in, const EngineOptions& options_in)
      : model(model_in),
        options((check_options(model_in, options_in), options_in)),
        loop(model, loop_options(model, options), true) {}

  const LanguageModel& model;
  const EngineOptions options;
  generation::GenerationLoop loop;
  std::optional<const core::KeepMemory> keep;  // temporary memory of the loop is reused in the next step

  // Shared with other threads under the mutex.
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::list<GenerationJob> waiting;  // the engine's thread takes jobs out without allocating memory
  bool closed = false, stopped = false;
  int64_t requests = 0, cancelled_waiting = 0;
  std::thread thread;

  void run();
  void check_request(const EngineRequest& request) const;
  std::optional<int64_t> most() const;
  /// Gives slots to waiting requests. Returns false if the engine stops.
  bool admit();
};

std::optional<int64_t> Engine::State::most() const {
  const std::optional<int64_t> end = model::end_of_positions(model.config().transformer);
  if (options.max_tokens == 0) return end;
  return end ? std::min(*end, options.max_tokens) : options.max_tokens;
}

void Engine::State::check_request(const EngineRequest& request) const {
  check_usage(!request.prompt.empty(), "[engine] the prompt has no tokens, expected at least one");
  const int vocab = model.config().vocab_size;
  generation::check_options(request.options, vocab);
  for (const int32_t id : request.prompt) {
    check_usage(id >= 0 && id < vocab, "[engine] the prompt has the token {}, expected 0 to {}", id, vocab - 1);
  }
  check_usage(request.samples >= 1 && request.samples <= options.slots,
              "[engine] {} samples were requested, expected 1 to {}, the number of slots", request.samples,
              options.slots);
  for (const auto& [name, count] :
       {std::pair{"logprobs", request.logprobs}, std::pair{"prompt_logprobs", request.prompt_logprobs}}) {
    check_usage(!count || (*count >= 0 && *count <= vocab), "[engine] {} is {}, expected 0 to {}", name,
                count.value_or(0), vocab);
  }
  check_usage(request.options.stop.empty() || model.has_tokenizer(),
              "[engine] stop strings need a tokenizer, which the model does not have");
  if (const std::optional<int64_t> limit = most()) {
    const int64_t prompt = std::ssize(request.prompt);  // the last token that is drawn is not read
    const int64_t tokens = request.options.max_tokens;
    check_usage(prompt <= *limit && std::max<int64_t>(tokens, 1) - 1 <= *limit - prompt,
                "[engine] the prompt has {} tokens and max_tokens is {}, expected at most {} together", prompt, tokens,
                *limit);
  }
}

void Engine::State::run() {
  while (admit()) {
    if (!keep) keep.emplace();
    loop.step();
  }
  loop.cancel();
}

bool Engine::State::admit() {
  std::list<GenerationJob> cancelled;
  std::unique_lock lock(mutex);
  const auto is_cancelled = [](const GenerationJob& job) { return job.shared->cancelled.load(); };
  const auto has_work = [&] { return stopped || loop.has_jobs() || !waiting.empty(); };
  if (!changed.wait_for(lock, time_until_idle, has_work)) {
    lock.unlock();
    keep.reset();
    core::system::return_free_memory();
    lock.lock();
    changed.wait(lock, has_work);
  }
  for (auto at = waiting.begin(); at != waiting.end();) {
    const auto job = at++;
    if (stopped || is_cancelled(*job)) cancelled.splice(cancelled.end(), waiting, job);
  }
  while (!waiting.empty() && loop.samples() + waiting.front().request().samples <= options.slots) {
    GenerationJob& job = waiting.front();
    job.start = core::Clock::now();
    job.result.queue_seconds = core::seconds_between(job.shared->submitted, job.start);
    loop.add_first(waiting);
  }
  cancelled_waiting += std::ssize(cancelled);
  const bool goes_on = !stopped;
  lock.unlock();
  for (GenerationJob& job : cancelled) {
    job.result.cancelled = true;
    job.shared->end(std::move(job.result), nullptr);
  }
  return goes_on;
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

Engine::Engine(const LanguageModel& model, const EngineOptions& options)
    : state_(std::make_shared<State>(model, options)) {
  state_->thread = std::thread([state = state_.get()] { state->run(); });
}

Engine::~Engine() {
  {
    const std::lock_guard lock(state_->mutex);
    state_->closed = state_->stopped = true;
  }
  state_->changed.notify_all();
  state_->thread.join();
}

Engine::Handle Engine::submit(EngineRequest request) {
  state_->check_request(request);
  auto shared = std::make_shared<Handle::State>();
  shared->request = std::move(request);
  shared->request.options.on_token = {};
  shared->request.options.on_text = {};
  shared->wake = [engine = std::weak_ptr(state_)] {
    const auto state = engine.lock();
    if (!state) return;
    const std::lock_guard lock(state->mutex);
    state->changed.notify_all();
  };
  std::list<GenerationJob> one;
  one.push_back({.shared = shared});
  one.back().result.prompt_tokens = std::ssize(shared->request.prompt);
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->closed) throw EngineBusy("[engine] it is stopping and takes no further requests");
    const int64_t waiting = std::count_if(state_->waiting.begin(), state_->waiting.end(),
                                          [](const auto& job) { return !job.shared->cancelled.load(); });
    // A request that finds free slots does not wait longer than a step.
    if (waiting - (state_->loop.stats().running < state_->options.slots ? 1 : 0) >= state_->options.queue) {
      throw EngineBusy(fmt::format("[engine] {} requests are waiting, which is the limit; try again later", waiting));
    }
    const auto later = std::find_if(state_->waiting.begin(), state_->waiting.end(), [&](const GenerationJob& job) {
      return job.request().priority > one.front().request().priority;
    });
    state_->waiting.splice(later, one);
    ++state_->requests;
  }
  state_->changed.notify_all();
  return Handle(std::move(shared));
}

void Engine::close() {
  const std::lock_guard lock(state_->mutex);
  state_->closed = true;
}

EngineStats Engine::stats() const {
  const std::lock_guard lock(state_->mutex);
  EngineStats stats = state_->loop.stats();
  stats.requests = state_->requests;
  stats.cancelled += state_->cancelled_waiting;
  stats.waiting = std::ssize(state_->waiting);
  return stats;
}

const LanguageModel& Engine::model() const { return state_->model; }
const EngineOptions& Engine::options() const { return state_->options; }
std::optional<int64_t> Engine::max_tokens() const { return state_->most(); }

}  // namespace alibi
