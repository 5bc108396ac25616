// The loop that generates texts. Prompt and LanguageModel::generate_ids() run it on the caller's thread, the engine on
// its own.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <exception>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "alibi/context.h"
#include "alibi/engine.h"
#include "generate/generated_text.h"
#include "generate/prefix_cache.h"
#include "model/context_state.h"

namespace alibi::generation {

/// A request and its result, which the loop and those who wait for the result share.
struct RequestState {
  EngineRequest request;
  std::atomic<bool> cancelled = false;
  std::chrono::steady_clock::time_point submitted = std::chrono::steady_clock::now();

  mutable std::mutex mutex;
  mutable std::condition_variable ended;
  bool has_ended = false;
  EngineResult result;
  std::exception_ptr failure;

  void end(EngineResult value, const std::exception_ptr& why) noexcept;
};

/// A sample of a request and the context that has read it.
struct Sample {
  Context context;
  GeneratedText text;
};

/// A request whose prompt is read or whose samples are generated.
struct GenerationJob {
  std::shared_ptr<RequestState> shared;
  std::optional<Context> context = {};  // while the prompt is read
  int64_t read = 0;                     // tokens of the prompt
  int64_t first_sample = 0;             // number of the first of request().samples
  bool has_text = true;                 // see GeneratedText
  std::vector<Sample> samples = {};
  EngineResult result = {};
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();

  const EngineRequest& request() const { return shared->request; }
  bool is_reading() const { return samples.empty(); }
  bool wants_logprobs() const { return request().logprobs || request().prompt_logprobs; }
  bool goes_on() const;
};

/// Reads prompts and generates texts, step by step. Each step reads the weights once for all texts: one token of each
/// text that grows, and chunks of prompts, which take turns, up to step_tokens. Only stats() may be called on several
/// threads.
class GenerationLoop {
 public:
  /// `separates`: requests come from different callers. The bits of each are then independent of the others, and one
  /// that fails leaves the others alone. Otherwise step() throws, and the loop must not be used any more.
  GenerationLoop(const LanguageModel& model, const EngineOptions& options, bool separates);

  /// Adds the first job of a list. Allocates no memory.
  void add_first(std::list<GenerationJob>& from) { jobs_.splice(jobs_.end(), from, from.begin()); }
  /// Adds a job whose context has read the prompt, and draws its first tokens from the logits.
  void add(GenerationJob job, std::span<const float> logits);
  /// Whether there are jobs, or failed jobs that the next step removes.
  bool has_jobs() const { return !jobs_.empty(); }
  /// Number of samples of all jobs.
  int64_t samples() const;

  void step();
  /// Ends all jobs.
  void cancel();
  EngineStats stats() const;

 private:
  /// Tokens that a step reads into one context, for a sample or for the prompt of a job.
  struct Row {
    GenerationJob* job;
    Sample* sample;  // null: a chunk of the prompt
    model::RaggedRow read;
  };

  void drop_cancelled();
  void read_and_draw();
  std::vector<Row> plan();
  bool waits_for_prefix(const GenerationJob& job) const;
  void begin_prompt(GenerationJob& job);
  Tensor read(std::span<const Row> rows);
  void use(std::span<const Row> rows, const Tensor& states);
  void draw(std::span<const Row> rows, const Tensor& states);
  void use_prompt(GenerationJob& job, std::span<const int32_t> ids);
  void end_prompt(GenerationJob& job, const Logits& logits);
  void end_jobs();
  void fail(GenerationJob& job, const std::exception_ptr& why);
  void count();

  const LanguageModel& model_;
  const EngineOptions options_;
  const bool separates_;
  std::list<GenerationJob> jobs_;  // prompts that are read take turns in this order
  PrefixCache prefixes_;
  model::PassMemory memory_;

  mutable std::mutex mutex_;  // of the statistics
  EngineStats stats_;
};

}  // namespace alibi::generation
