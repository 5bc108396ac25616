#include "generate/generation_loop.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "core/clock.h"
#include "generate/sampling.h"
#include "nn/cross_entropy.h"
#include "nn/products.h"

namespace alibi::generation {

void RequestState::end(EngineResult value, const std::exception_ptr& why) noexcept {
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

bool GenerationJob::goes_on() const {
  return is_reading() ||
         std::any_of(samples.begin(), samples.end(), [](const auto& one) { return one.text.goes_on(); });
}

GenerationLoop::GenerationLoop(const LanguageModel& model, const EngineOptions& options, bool separates)
    : model_(model),
      options_(options),
      separates_(separates),
      prefixes_(options.chunk_tokens, options.prefix_bytes,
                options.context.evicts() || model.config().transformer.attention.sliding_window > 0) {}

void GenerationLoop::add(GenerationJob job, std::span<const float> logits) {
  job.read = job.result.prompt_tokens = std::ssize(job.request().prompt);
  jobs_.push_back(std::move(job));
  end_prompt(jobs_.back(), {logits});
  end_jobs();
}

int64_t GenerationLoop::samples() const {
  int64_t sum = 0;
  for (const GenerationJob& job : jobs_) sum += job.request().samples;
  return sum;
}

void GenerationLoop::step() {
  const auto start = core::Clock::now();
  try {
    drop_cancelled();
    read_and_draw();
    end_jobs();
    if (separates_) count();
  } catch (...) {  // no memory, for example
    if (!separates_) throw;
    for (GenerationJob& job : jobs_) fail(job, std::current_exception());
  }
  const std::lock_guard lock(mutex_);
  stats_.seconds += core::seconds_between(start, core::Clock::now());
}

void GenerationLoop::cancel() {
  for (GenerationJob& job : jobs_) job.shared->cancelled = true;
  drop_cancelled();
}

EngineStats GenerationLoop::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

/// A prompt whose first chunks are just being read for another request waits for them.
bool GenerationLoop::waits_for_prefix(const GenerationJob& job) const {
  if (job.request().prompt_logprobs || options_.context.evicts()) return false;
  for (const GenerationJob& other : jobs_) {
    if (&other == &job || !other.context) continue;
    const int64_t kept = prefixes_.kept_tokens(std::ssize(other.request().prompt));
    if (other.read >= kept) continue;
    if (prefixes_.common(other.request().prompt, job.request().prompt) > 0) return true;
  }
  return false;
}

void GenerationLoop::begin_prompt(GenerationJob& job) {
  if (!job.request().prompt_logprobs) job.context = prefixes_.find(job.request().prompt);
  if (!job.context) job.context.emplace(model_, options_.context);
  job.read = job.result.reused_tokens = job.context->position();
}

/// One token of each text that grows, then chunks of prompts, up to the limit of a step.
std::vector<GenerationLoop::Row> GenerationLoop::plan() {
  std::vector<Row> rows;
  int64_t tokens = 0;
  for (GenerationJob& job : jobs_) {
    for (Sample& sample : job.samples) {
      if (!sample.text.goes_on()) continue;
      rows.push_back({&job, &sample, {&sample.context, sample.text.last()}});
      ++tokens;
    }
  }
  const int64_t chunk = options_.chunk_tokens;
  std::vector<std::list<GenerationJob>::iterator> used;
  for (auto job = jobs_.begin(); job != jobs_.end(); ++job) {
    if (!job->is_reading()) continue;
    if (!job->context) {
      if (job->shared->has_ended || waits_for_prefix(*job)) continue;
      try {
        begin_prompt(*job);
      } catch (...) {
        fail(*job, std::current_exception());
        continue;
      }
    }
    const std::span<const int32_t> prompt = job->request().prompt;
    // Chunks end at multiples of their size, so that they do not depend on other requests.
    const int64_t count = std::min(std::ssize(prompt), (job->read / chunk + 1) * chunk) - job->read;
    if (tokens + count > options_.step_tokens) break;
    tokens += count;
    rows.push_back(
        {&*job, nullptr, {&*job->context, prompt.subspan(static_cast<size_t>(job->read), static_cast<size_t>(count))}});
    used.push_back(job);
  }
  for (const auto job : used) jobs_.splice(jobs_.end(), jobs_, job);
  return rows;
}

void GenerationLoop::read_and_draw() {
  const std::vector<Row> rows = plan();
  if (rows.empty()) return;
  Tensor states;
  try {
    states = read(rows);
  } catch (...) {
    if (rows.size() == 1 || !separates_) return fail(*rows.front().job, std::current_exception());
  }
  if (states.defined()) return use(rows, states);
  // One of the rows failed. Contexts are as they were before, so each row is read on its own, with the same bits.
  for (const Row& row : rows) {
    if (row.job->shared->has_ended) continue;
    try {
      states = read({&row, 1});
    } catch (...) {
      fail(*row.job, std::current_exception());
      continue;
    }
    use({&row, 1}, states);
  }
}

Tensor GenerationLoop::read(std::span<const Row> rows) {
  std::vector<model::RaggedRow> ragged;
  for (const Row& row : rows) ragged.push_back(row.read);
  const nn::IndependentRows independent(separates_);
  return model::read_ragged(model_, ragged, memory_);
}

void GenerationLoop::use(std::span<const Row> rows, const Tensor& states) {
  try {
    draw(rows, states);
  } catch (...) {
    for (const Row& row : rows) fail(*row.job, std::current_exception());
  }
}

/// Computes the logits of the rows that need them, some at a time, and hands them out.
void GenerationLoop::draw(std::span<const Row> rows, const Tensor& states) {
  struct Wanted {
    const Row* row;
    int64_t state, id;  // row of states, and index of its token in the row of the step
  };
  std::vector<Wanted> wanted;
  int64_t first = 0, prompt_tokens = 0, generated = 0;
  for (const Row& row : rows) {
    const int64_t count = std::ssize(row.read.ids);
    if (row.sample != nullptr) {
      wanted.push_back({&row, first, 0});
      ++generated;
    } else {
      GenerationJob& job = *row.job;
      const bool is_end = job.read + count == job.result.prompt_tokens;
      for (int64_t i = job.request().prompt_logprobs ? 0 : is_end ? count - 1 : count; i < count; ++i) {
        wanted.push_back({&row, first + i, i});
      }
      prompt_tokens += count;
    }
    first += count;
  }
  const int64_t width = states.size(1);
  for (const Row& row : rows) {
    if (row.sample == nullptr) use_prompt(*row.job, row.read.ids);
  }
  const int64_t most = nn::cross_entropy_chunk_rows(model_.config().vocab_size);
  for (size_t begin = 0; begin < wanted.size(); begin += static_cast<size_t>(most)) {
    const auto part = std::span(wanted).subspan(begin, std::min(wanted.size() - begin, static_cast<size_t>(most)));
    const Tensor picked = Tensor::empty({std::ssize(part), width});
    for (size_t i = 0; i < part.size(); ++i) {
      picked.slice(0, static_cast<int64_t>(i), static_cast<int64_t>(i) + 1)
          .copy_from(states.slice(0, part[i].state, part[i].state + 1));
    }
    const nn::IndependentRows independent(separates_);
    const Tensor logits = model::logits(model_, picked);
    std::vector<double> sums(part.size());
    if (std::any_of(part.begin(), part.end(), [](const Wanted& one) { return one.row->job->wants_logprobs(); }))
      nn::log_sum_exp(logits, sums);
    for (size_t i = 0; i < part.size(); ++i) {
      const auto [row, state, id] = part[i];
      const int64_t vocab = logits.size(1);
      const Logits of_row{{logits.data<float>() + static_cast<int64_t>(i) * vocab, static_cast<size_t>(vocab)},
                          sums[i]};
      GenerationJob& job = *row->job;
      if (job.shared->has_ended) continue;
      try {
        if (row->sample != nullptr) {
          row->sample->text.draw(of_row);
          continue;
        }
        const auto position = static_cast<size_t>(row->read.ids.data() - job.request().prompt.data() + id);
        const std::vector<int32_t>& prompt = job.request().prompt;
        if (position + 1 == prompt.size()) {
          end_prompt(job, of_row);
        } else if (job.request().prompt_logprobs) {
          check_logits(of_row.row);
          job.result.prompt.push_back(of_row.token(prompt[position + 1], *job.request().prompt_logprobs));
        }
      } catch (...) {
        fail(job, std::current_exception());
      }
    }
  }
  const std::lock_guard lock(mutex_);
  ++stats_.steps;
  stats_.prompt_tokens += prompt_tokens;
  stats_.generated_tokens += generated;
}

void GenerationLoop::use_prompt(GenerationJob& job, std::span<const int32_t> ids) {
  if (job.request().prompt_logprobs && job.read == 0) job.result.prompt.push_back({.id = ids.front()});
  job.read += std::ssize(ids);
  if (job.read > 0 && job.read == prefixes_.kept_tokens(job.result.prompt_tokens)) {
    prefixes_.keep(std::span(job.request().prompt).first(static_cast<size_t>(job.read)), *job.context);
  }
}

void GenerationLoop::end_prompt(GenerationJob& job, const Logits& logits) {
  const EngineRequest& request = job.request();
  job.result.prompt_seconds = core::seconds_between(job.start, core::Clock::now());
  job.samples.reserve(static_cast<size_t>(request.samples));
  for (int64_t i = 0; i < request.samples; ++i) {
    job.samples.push_back({i + 1 == request.samples ? std::move(*job.context) : job.context->fork(),
                           GeneratedText(model_, request, job.first_sample + i, job.has_text)});
  }
  job.context.reset();
  for (Sample& sample : job.samples)
    sample.text.goes_on() ? sample.text.draw(logits) : sample.text.end_without_tokens();
}

void GenerationLoop::drop_cancelled() {
  for (GenerationJob& job : jobs_) {
    if (job.shared->cancelled) job.result.cancelled = true;
  }
  end_jobs();
}

/// Ends a job because of an error. Its slots are free after end_jobs().
void GenerationLoop::fail(GenerationJob& job, const std::exception_ptr& why) {
  if (!separates_) std::rethrow_exception(why);
  if (job.shared->has_ended) return;
  job.shared->cancelled = true;
  job.result.cancelled = true;
  job.context.reset();
  job.samples.clear();
  {
    const std::lock_guard lock(mutex_);
    ++stats_.failed;
  }
  job.shared->end({}, why);
}

void GenerationLoop::end_jobs() {
  std::list<GenerationJob> ended;
  {
    const std::lock_guard lock(mutex_);
    for (auto job = jobs_.begin(); job != jobs_.end();) {
      const auto next = std::next(job);
      if (job->shared->cancelled || !job->goes_on()) ended.splice(ended.end(), jobs_, job);
      job = next;
    }
    stats_.running = samples();
  }
  for (GenerationJob& job : ended) {
    if (job.shared->has_ended) continue;  // it failed
    job.result.cancelled = job.goes_on() || job.result.cancelled;
    try {
      for (auto& [context, text] : job.samples) {
        if (text.goes_on()) text.interrupt();
        EngineSample& sample = job.result.samples.emplace_back(text.finish());
        sample.generation.cache_bytes = context.bytes();
        sample.generation.shared_bytes = context.shared_bytes();
        sample.generation.certificate = context.certificate();
      }
    } catch (...) {
      fail(job, std::current_exception());
      continue;
    }
    {
      const std::lock_guard lock(mutex_);
      stats_.cancelled += job.result.cancelled ? 1 : 0;
      stats_.reused_tokens += job.result.reused_tokens;
      for (const EngineSample& sample : job.result.samples) {
        stats_.evicted_keys += sample.generation.certificate.keys;
        stats_.worst_share = std::max(stats_.worst_share, sample.generation.certificate.worst);
      }
    }
    job.samples.clear();
    job.context.reset();
    const auto shared = std::move(job.shared);
    shared->end(std::move(job.result), nullptr);
  }
}

void GenerationLoop::count() {
  int64_t bytes = 0;
  for (GenerationJob& job : jobs_) {
    if (job.context) bytes += job.context->bytes();
    for (const Sample& sample : job.samples) bytes += sample.context.bytes();
  }
  const std::lock_guard lock(mutex_);
  stats_.running = samples();
  stats_.cache_bytes = bytes;
  stats_.prefix_bytes = prefixes_.bytes();
}

}  // namespace alibi::generation
