#include "alibi/engine.h"

#include <algorithm>
#include <iterator>
#include <list>
#include <optional>
#include <span>
#include <thread>
#include <utility>

#include "core/check.h"
#include "core/memory.h"
#include "core/system.h"
#include "generate/engine_requests.h"
#include "generate/sampling.h"
#include "model/context_state.h"
#include "model/position.h"
#include "nn/cross_entropy.h"
#include "nn/products.h"

namespace alibi::generation {

/// Keys and values of prompts that were read, for later prompts that begin with the same tokens: contexts and the
/// tokens that they have read, each a whole number of chunks. The least recently used ones leave when they need more
/// memory than the limit.
class PrefixCache {
 public:
  /// `evicts`: contexts evict keys, so what they hold depends on all tokens that they have read. They are then used
  /// only where they stand.
  PrefixCache(int64_t chunk, int64_t most_bytes, bool evicts)
      : chunk_(chunk), most_bytes_(most_bytes), evicts_(evicts) {}

  bool keeps_any() const { return most_bytes_ > 0; }
  /// Number of tokens of a prompt after which its context can be kept; 0: never.
  int64_t kept_tokens(int64_t prompt) const { return keeps_any() ? prompt / chunk_ * chunk_ : 0; }
  /// Number of whole chunks' tokens that two texts have in common.
  int64_t common(std::span<const int32_t> a, std::span<const int32_t> b) const;

  /// Keeps a fork of a context that has read these tokens.
  void keep(std::span<const int32_t> ids, const Context& context);
  /// A context that has read the largest number of whole chunks of `ids`, and not its last token.
  std::optional<Context> find(std::span<const int32_t> ids);
  int64_t bytes() const;

 private:
  struct Entry {
    std::vector<int32_t> ids;
    Context context;
  };
  int64_t chunk_, most_bytes_;
  bool evicts_;
  std::list<Entry> entries_;  // the most recently used one first
};

int64_t PrefixCache::common(std::span<const int32_t> a, std::span<const int32_t> b) const {
  const auto end = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first;
  return (end - a.begin()) / chunk_ * chunk_;
}

void PrefixCache::keep(std::span<const int32_t> ids, const Context& context) {
  if (!keeps_any() || context.bytes() > most_bytes_) return;
  const auto is_part = [&](const Entry& entry) {
    return entry.ids.size() <= ids.size() && std::equal(entry.ids.begin(), entry.ids.end(), ids.begin()) &&
           (!evicts_ || entry.ids.size() == ids.size());
  };
  entries_.remove_if(is_part);  // the new context serves the same prompts
  entries_.push_front({{ids.begin(), ids.end()}, context.fork()});
  while (bytes() > most_bytes_) entries_.pop_back();
}

std::optional<Context> PrefixCache::find(std::span<const int32_t> ids) {
  const std::span<const int32_t> usable = ids.first(ids.empty() ? 0 : ids.size() - 1);
  auto best = entries_.end();
  int64_t most = 0;
  for (auto entry = entries_.begin(); entry != entries_.end(); ++entry) {
    const int64_t shared = common(entry->ids, usable);
    if (shared <= most || (evicts_ && shared < std::ssize(entry->ids))) continue;
    most = shared;
    best = entry;
  }
  if (best == entries_.end()) return std::nullopt;
  entries_.splice(entries_.begin(), entries_, best);
  Context context = best->context.fork();
  if (context.position() > most) context.rewind(most);
  return context;
}

int64_t PrefixCache::bytes() const {
  int64_t sum = 0;
  for (const Entry& entry : entries_) sum += entry.context.bytes();
  return sum;
}

}  // namespace alibi::generation

namespace alibi {
namespace {

using generation::EngineJob;
using generation::EngineText;
using generation::Logits;
using Clock = std::chrono::steady_clock;

/// An engine without requests for this long gives its temporary memory back.
constexpr std::chrono::seconds time_until_idle{1};

double seconds_between(Clock::time_point start, Clock::time_point end) {
  return std::chrono::duration<double>(end - start).count();
}

/// Tokens that a step reads into one context, for a text or for the prompt of a job.
struct StepRow {
  EngineJob* job;
  EngineText* text;  // null: a chunk of the prompt
  model::RaggedRow row;
};

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

}  // namespace

struct [[gnu::visibility("hidden")]] Engine::State {
  State(const LanguageModel& model_in, const EngineOptions& options_in)
      : model(model_in),
        options((check_options(model_in, options_in), options_in)),
        chunk(std::min(options.chunk_tokens, model::most_tokens(Context(model, options.context)))),
        prefixes(chunk, options.prefix_bytes,
                 options.context.evicts() || model.config().transformer.attention.sliding_window > 0) {}

  const LanguageModel& model;
  const EngineOptions options;
  const int64_t chunk;

  // Shared with other threads under the mutex.
  mutable std::mutex mutex;
  std::condition_variable changed;
  std::list<EngineJob> waiting;  // the engine's thread takes jobs out without allocating memory
  bool closed = false, stopped = false;
  EngineStats stats;
  std::thread thread;

  // Of the engine's thread.
  std::list<EngineJob> jobs;  // prompts that are read take turns in this order
  generation::PrefixCache prefixes;
  model::PassMemory memory;
  std::optional<const core::KeepMemory> keep;  // temporary memory is reused in the next step

  void run();
  void check_request(const EngineRequest& request) const;
  std::optional<int64_t> most() const;
  int64_t slots_in_use() const;
  /// Gives slots to waiting requests. Returns false if the engine stops.
  bool admit();
  void drop_cancelled();
  std::vector<StepRow> plan();
  bool waits_for_prefix(const EngineJob& job) const;
  void begin_prompt(EngineJob & job);
  void step();
  void use(std::span<const StepRow> rows, const Tensor& states);
  void hand_out(std::span<const StepRow> rows, const Tensor& states);
  void use_prompt(EngineJob & job, std::span<const int32_t> ids);
  void end_prompt(EngineJob & job, const Logits& logits);
  void end_jobs();
  void end(EngineJob & job, const std::exception_ptr& why);
  void count();
};

std::optional<int64_t> Engine::State::most() const {
  const std::optional<int64_t> end = model::end_of_positions(model.config().transformer);
  if (options.max_tokens == 0) return end;
  return end ? std::min(*end, options.max_tokens) : options.max_tokens;
}

void Engine::State::check_request(const EngineRequest& request) const {
  generation::check_options(request.options);
  check_usage(!request.prompt.empty(), "[engine] the prompt has no tokens, expected at least one");
  const int vocab = model.config().vocab_size;
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
  generation::StopStrings{request.options.stop};  // throws for an empty string
}

int64_t Engine::State::slots_in_use() const {
  int64_t sum = 0;
  for (const EngineJob& job : jobs) sum += job.request().samples;
  return sum;
}

void Engine::State::run() {
  while (admit()) {
    const auto start = Clock::now();
    try {
      if (!keep) keep.emplace();
      step();
      end_jobs();
      count();
    } catch (...) {  // no memory, for example
      for (EngineJob& job : jobs) end(job, std::current_exception());
    }
    const std::lock_guard lock(mutex);
    stats.seconds += seconds_between(start, Clock::now());
  }
}

bool Engine::State::admit() {
  std::list<EngineJob> cancelled;
  std::unique_lock lock(mutex);
  const auto cancelled_waiting = [&] {
    return std::any_of(waiting.begin(), waiting.end(), [](const auto& job) { return job.shared->cancelled.load(); });
  };
  const auto has_work = [&] { return stopped || !jobs.empty() || !waiting.empty() || cancelled_waiting(); };
  if (!changed.wait_for(lock, time_until_idle, has_work)) {
    lock.unlock();
    keep.reset();
    core::system::return_free_memory();
    lock.lock();
    changed.wait(lock, has_work);
  }
  if (stopped) {
    for (EngineJob& job : waiting) job.shared->cancelled = true;
    for (EngineJob& job : jobs) job.shared->cancelled = true;
  }
  for (auto at = waiting.begin(); at != waiting.end();) {
    const auto job = at++;
    if (job->shared->cancelled) cancelled.splice(cancelled.end(), waiting, job);
  }
  while (!waiting.empty() && slots_in_use() + waiting.front().request().samples <= options.slots) {
    jobs.splice(jobs.end(), waiting, waiting.begin());
    EngineJob& job = jobs.back();
    job.start = Clock::now();
    job.result.queue_seconds = seconds_between(job.shared->submitted, job.start);
  }
  stats.cancelled += std::ssize(cancelled);
  const bool goes_on = !stopped;
  lock.unlock();
  for (EngineJob& job : cancelled) {
    job.result.cancelled = true;
    job.shared->end(std::move(job.result), nullptr);
  }
  if (!goes_on) end_jobs();
  return goes_on;
}

/// A prompt whose first chunks are just being read for another request waits for them.
bool Engine::State::waits_for_prefix(const EngineJob& job) const {
  if (job.request().prompt_logprobs || options.context.evicts()) return false;
  for (const EngineJob& other : jobs) {
    if (&other == &job || !other.context) continue;
    const int64_t kept = prefixes.kept_tokens(std::ssize(other.request().prompt));
    if (other.read >= kept) continue;
    if (prefixes.common(other.request().prompt, job.request().prompt) > 0) return true;
  }
  return false;
}

void Engine::State::begin_prompt(EngineJob& job) {
  if (!job.request().prompt_logprobs) job.context = prefixes.find(job.request().prompt);
  if (!job.context) job.context.emplace(model, options.context);
  job.read = job.result.reused_tokens = job.context->position();
}

/// One token of each text that grows, then chunks of prompts, up to the limit of a step.
std::vector<StepRow> Engine::State::plan() {
  std::vector<StepRow> rows;
  int64_t tokens = 0;
  for (EngineJob& job : jobs) {
    for (const auto& text : job.texts) {
      if (!text->goes_on()) continue;
      rows.push_back({&job, text.get(), {&text->context(), text->next()}});
      ++tokens;
    }
  }
  std::vector<std::list<EngineJob>::iterator> used;
  for (auto job = jobs.begin(); job != jobs.end(); ++job) {
    if (!job->is_reading()) continue;
    if (!job->context) {
      if (job->shared->has_ended || waits_for_prefix(*job)) continue;
      try {
        begin_prompt(*job);
      } catch (...) {
        end(*job, std::current_exception());
        continue;
      }
    }
    const std::span<const int32_t> prompt = job->request().prompt;
    // Chunks end at multiples of their size, so that they do not depend on other requests.
    const int64_t count = std::min(std::ssize(prompt), job->read / chunk * chunk + chunk) - job->read;
    if (tokens + count > options.step_tokens) break;
    tokens += count;
    rows.push_back(
        {&*job, nullptr, {&*job->context, prompt.subspan(static_cast<size_t>(job->read), static_cast<size_t>(count))}});
    used.push_back(job);
  }
  for (const auto job : used) jobs.splice(jobs.end(), jobs, job);
  return rows;
}

void Engine::State::step() {
  drop_cancelled();
  const std::vector<StepRow> rows = plan();
  if (rows.empty()) return;
  const auto read = [&](std::span<const StepRow> some) {
    std::vector<model::RaggedRow> ragged;
    for (const StepRow& row : some) ragged.push_back(row.row);
    return model::read_ragged(model, ragged, memory);
  };
  Tensor states;
  try {
    states = read(rows);
  } catch (...) {
    if (rows.size() == 1) return end(*rows.front().job, std::current_exception());
  }
  if (states.defined()) return use(rows, states);
  // One of the rows failed. Contexts are as they were before, so each row is read on its own, with the same bits.
  for (const StepRow& row : rows) {
    if (row.job->shared->has_ended) continue;
    try {
      states = read({&row, 1});
    } catch (...) {
      end(*row.job, std::current_exception());
      continue;
    }
    use({&row, 1}, states);
  }
}

void Engine::State::use(std::span<const StepRow> rows, const Tensor& states) {
  try {
    hand_out(rows, states);
  } catch (...) {
    for (const StepRow& row : rows) end(*row.job, std::current_exception());
  }
}

/// Computes the logits of the rows that need them, some at a time, and hands them out.
void Engine::State::hand_out(std::span<const StepRow> rows, const Tensor& states) {
  struct Wanted {
    const StepRow* row;
    int64_t state, id;  // row of states, and index of its token in the row of the step
  };
  std::vector<Wanted> wanted;
  int64_t first = 0, prompt_tokens = 0, generated = 0;
  for (const StepRow& row : rows) {
    const int64_t count = std::ssize(row.row.ids);
    if (row.text != nullptr) {
      wanted.push_back({&row, first, 0});
      ++generated;
    } else {
      EngineJob& job = *row.job;
      const bool is_end = job.read + count == job.result.prompt_tokens;
      for (int64_t i = job.request().prompt_logprobs ? 0 : is_end ? count - 1 : count; i < count; ++i) {
        wanted.push_back({&row, first + i, i});
      }
      prompt_tokens += count;
    }
    first += count;
  }
  const int64_t width = states.size(1);
  for (const StepRow& row : rows) {
    if (row.text == nullptr) use_prompt(*row.job, row.row.ids);
  }
  const int64_t most = nn::cross_entropy_chunk_rows(model.config().vocab_size);
  for (size_t begin = 0; begin < wanted.size(); begin += static_cast<size_t>(most)) {
    const auto part = std::span(wanted).subspan(begin, std::min(wanted.size() - begin, static_cast<size_t>(most)));
    const Tensor picked = Tensor::empty({std::ssize(part), width});
    for (size_t i = 0; i < part.size(); ++i) {
      picked.slice(0, static_cast<int64_t>(i), static_cast<int64_t>(i) + 1)
          .copy_from(states.slice(0, part[i].state, part[i].state + 1));
    }
    const nn::IndependentRows independent;
    const Tensor logits = model::logits(model, picked);
    std::vector<double> sums(part.size());
    nn::log_sum_exp(logits, sums);
    for (size_t i = 0; i < part.size(); ++i) {
      const auto [row, state, id] = part[i];
      const int64_t vocab = logits.size(1);
      const Logits of_row{{logits.data<float>() + static_cast<int64_t>(i) * vocab, static_cast<size_t>(vocab)},
                          sums[i]};
      EngineJob& job = *row->job;
      if (job.shared->has_ended) continue;
      try {
        if (row->text != nullptr) {
          row->text->draw(of_row);
          continue;
        }
        const auto position = static_cast<size_t>(row->row.ids.data() - job.request().prompt.data() + id);
        const std::vector<int32_t>& prompt = job.request().prompt;
        if (position + 1 == prompt.size()) {
          end_prompt(job, of_row);
        } else if (job.request().prompt_logprobs) {
          generation::check_logits(of_row.row);
          job.result.prompt.push_back(of_row.token(prompt[position + 1], *job.request().prompt_logprobs));
        }
      } catch (...) {
        end(job, std::current_exception());
      }
    }
  }
  const std::lock_guard lock(mutex);
  ++stats.steps;
  stats.prompt_tokens += prompt_tokens;
  stats.generated_tokens += generated;
}

void Engine::State::use_prompt(EngineJob& job, std::span<const int32_t> ids) {
  if (job.request().prompt_logprobs && job.read == 0) job.result.prompt.push_back({.id = ids.front()});
  job.read += std::ssize(ids);
  if (job.read > 0 && job.read == prefixes.kept_tokens(job.result.prompt_tokens)) {
    prefixes.keep(std::span(job.request().prompt).first(static_cast<size_t>(job.read)), *job.context);
  }
}

void Engine::State::end_prompt(EngineJob& job, const Logits& logits) {
  const EngineRequest& request = job.request();
  job.result.prompt_seconds = seconds_between(job.start, Clock::now());
  for (int64_t sample = 0; sample < request.samples; ++sample) {
    const bool is_last = sample + 1 == request.samples;
    job.texts.push_back(
        std::make_unique<EngineText>(model, request, sample, is_last ? std::move(*job.context) : job.context->fork()));
  }
  job.context.reset();
  for (const auto& text : job.texts) text->goes_on() ? text->draw(logits) : text->end_without_tokens();
}

void Engine::State::drop_cancelled() {
  for (EngineJob& job : jobs) {
    if (!job.shared->cancelled) continue;
    job.result.cancelled = true;
    for (const auto& text : job.texts) text->interrupt();
  }
  end_jobs();
}

/// Ends a job because of an error. Its slots are free after end_jobs().
void Engine::State::end(EngineJob& job, const std::exception_ptr& why) {
  if (job.shared->has_ended) return;
  job.shared->cancelled = true;
  job.result.cancelled = true;
  job.context.reset();
  job.texts.clear();
  {
    const std::lock_guard lock(mutex);
    ++stats.failed;
  }
  job.shared->end({}, why);
}

void Engine::State::end_jobs() {
  std::list<EngineJob> ended;
  {
    const std::lock_guard lock(mutex);
    for (auto job = jobs.begin(); job != jobs.end();) {
      const auto next = std::next(job);
      if (job->shared->cancelled || !job->goes_on()) ended.splice(ended.end(), jobs, job);
      job = next;
    }
    stats.running = slots_in_use();
  }
  for (EngineJob& job : ended) {
    if (job.shared->has_ended) continue;  // it failed
    job.result.cancelled = job.goes_on() || job.result.cancelled;
    try {
      for (const auto& text : job.texts) {
        if (text->goes_on()) text->interrupt();
        job.result.samples.push_back(text->finish());
      }
    } catch (...) {
      end(job, std::current_exception());
      continue;
    }
    {
      const std::lock_guard lock(mutex);
      stats.cancelled += job.result.cancelled ? 1 : 0;
      stats.reused_tokens += job.result.reused_tokens;
      for (const EngineSample& sample : job.result.samples) {
        stats.evicted_keys += sample.generation.certificate.keys;
        stats.worst_share = std::max(stats.worst_share, sample.generation.certificate.worst);
      }
    }
    job.texts.clear();
    job.context.reset();
    const auto shared = std::move(job.shared);
    shared->end(std::move(job.result), nullptr);
  }
}

void Engine::State::count() {
  int64_t bytes = 0, running = 0;
  for (EngineJob& job : jobs) {
    running += job.request().samples;
    if (job.context) bytes += job.context->bytes();
    for (const auto& text : job.texts) bytes += text->context().bytes();
  }
  const std::lock_guard lock(mutex);
  stats.running = running;
  stats.cache_bytes = bytes;
  stats.prefix_bytes = prefixes.bytes();
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
  shared->wake = [engine = std::weak_ptr(state_)] {
    const auto state = engine.lock();
    if (!state) return;
    const std::lock_guard lock(state->mutex);
    state->changed.notify_all();
  };
  std::list<EngineJob> one;
  one.push_back({.shared = shared});
  one.back().result.prompt_tokens = std::ssize(shared->request.prompt);
  {
    const std::lock_guard lock(state_->mutex);
    if (state_->closed) throw EngineBusy("[engine] it is stopping and takes no further requests");
    const int64_t waiting = std::count_if(state_->waiting.begin(), state_->waiting.end(),
                                          [](const auto& job) { return !job.shared->cancelled.load(); });
    // A request that finds free slots does not wait longer than a step.
    if (waiting - (state_->stats.running < state_->options.slots ? 1 : 0) >= state_->options.queue) {
      throw EngineBusy(fmt::format("[engine] {} requests are waiting, which is the limit; try again later", waiting));
    }
    state_->waiting.splice(state_->waiting.end(), one);
    ++state_->stats.requests;
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
  EngineStats stats = state_->stats;
  stats.waiting = std::ssize(state_->waiting);
  return stats;
}

const LanguageModel& Engine::model() const { return state_->model; }
const EngineOptions& Engine::options() const { return state_->options; }
std::optional<int64_t> Engine::max_tokens() const { return state_->most(); }

}  // namespace alibi
