// The requests of an engine: what they wait for, and what they have so far.
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
#include <string>
#include <vector>

#include "alibi/engine.h"
#include "core/access.h"
#include "generate/drawn_text.h"

namespace alibi {

/// What the engine and the handles of a request share.
struct [[gnu::visibility("hidden")]] Engine::Handle::State {
  EngineRequest request;
  std::atomic<bool> cancelled = false;
  std::function<void()> wake;  // makes the engine look at `cancelled`
  std::chrono::steady_clock::time_point submitted = std::chrono::steady_clock::now();

  mutable std::mutex mutex;
  mutable std::condition_variable ended;
  bool has_ended = false;
  EngineResult result;
  std::exception_ptr failure;

  void end(EngineResult value, const std::exception_ptr& why) noexcept;
};

}  // namespace alibi

namespace alibi::generation {

/// Log-probabilities of the tokens that may follow a text.
struct Logits {
  std::span<const float> row;
  double log_sum_exp = 0;

  float logprob(int32_t id) const {
    return static_cast<float>(static_cast<double>(row[static_cast<size_t>(id)]) - log_sum_exp);
  }
  /// The token with its log-probability and those of the `count` most likely tokens.
  EngineToken token(int32_t id, int64_t count) const;
};

/// A sample of a request.
class EngineText {
 public:
  EngineText(const LanguageModel& model, const EngineRequest& request, int64_t sample, Context context);

  Context& context() { return context_; }
  bool goes_on() const { return drawn_.goes_on(); }
  /// The token that must be read next.
  std::span<const int32_t> next() const { return {&next_, 1}; }
  /// Draws a token and reports it.
  void draw(const Logits& logits);
  /// Reports the end of a text that draws no tokens.
  void end_without_tokens();
  /// The sample so far.
  EngineSample finish();
  void interrupt() { drawn_.interrupt(); }

 private:
  void report(std::optional<int32_t> drawn);

  const EngineRequest& request_;
  int64_t sample_;
  Context context_;
  std::string piece_;  // settled text that was not reported yet
  GenerateOptions options_;
  DrawnText drawn_;
  int32_t next_ = 0;
  std::vector<EngineToken> tokens_;
  size_t reported_ = 0;  // of tokens_
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();
};

/// A request with slots.
struct EngineJob {
  std::shared_ptr<core::StateOf<Engine::Handle>> shared;
  std::optional<Context> context = {};  // while the prompt is read
  int64_t read = 0;                     // tokens of the prompt
  std::vector<std::unique_ptr<EngineText>> texts = {};
  EngineResult result = {};
  std::chrono::steady_clock::time_point start = std::chrono::steady_clock::now();

  const EngineRequest& request() const { return shared->request; }
  bool is_reading() const { return texts.empty(); }
  bool goes_on() const;
};

}  // namespace alibi::generation
