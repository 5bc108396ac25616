// An engine that generates many texts at once: requests join and leave at every step.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "alibi/context.h"
#include "alibi/error.h"
#include "alibi/export.h"
#include "alibi/generate.h"
#include "alibi/language_model.h"

namespace alibi {

struct EngineOptions {
  int64_t slots = 16;          ///< maximum number of texts that are read or generated at the same time
  int64_t step_tokens = 512;   ///< maximum number of tokens of a step; at least slots + chunk_tokens
  int64_t chunk_tokens = 256;  ///< prompts are read in chunks of this number of tokens
  int64_t queue = 256;         ///< maximum number of requests that wait for a slot
  int64_t max_tokens = 0;      ///< maximum number of tokens of a text, prompt included; 0: no limit but the model's
  int64_t prefix_bytes = int64_t{256} << 20;  ///< memory for keys and values of prompts, for later prompts that begin
                                              ///< with the same tokens; 0 keeps none
  ContextOptions context = {};                ///< of each text: context.memory bounds the keys and values of one slot
};

struct TokenProbability {
  int32_t id = 0;
  float logprob = 0;  ///< natural logarithm of the model's probability, before temperature and penalties
};

/// A token of a text. Log-probabilities are computed from the same logits in the same way, so the token's logprob and
/// the one of the same token in `top` are equal.
struct EngineToken {
  int32_t id = 0;
  std::optional<float> logprob = {};       ///< absent if it was not requested, and for the first token of a text
  std::vector<TokenProbability> top = {};  ///< the most likely tokens, most likely first
  bool in_text = true;  ///< false for an end of text, and if the token's text begins in a stop string
};

/// What a step added to one sample of a request. The texts and the tokens of all events are those of the result.
struct EngineEvent {
  int64_t sample = 0;
  std::string text = {};                  ///< whole characters that are settled: no stop string can begin in them
  std::vector<EngineToken> tokens = {};   ///< drawn tokens whose in_text is settled, which may be none or several
  std::optional<int32_t> drawn = {};      ///< the token that this step drew; its entry in `tokens` may come later
  std::optional<GenerationEnd> end = {};  ///< set in the last event of the sample
};

struct EngineSample {
  Generation generation;
  std::vector<EngineToken> tokens;  ///< all drawn tokens, including those of a stop string and an end of text
};

struct EngineResult {
  std::vector<EngineSample> samples;
  std::vector<EngineToken> prompt;  ///< with prompt_logprobs: each token of the prompt; the first has no logprob
  int64_t prompt_tokens = 0;
  int64_t reused_tokens = 0;  ///< tokens of the prompt whose keys and values an earlier prompt had left
  double queue_seconds = 0;   ///< from submit() to the first step
  double prompt_seconds = 0;  ///< from the first step to the end of the prompt
  bool cancelled = false;     ///< the samples are those generated before; each may be empty
};

struct EngineRequest {
  std::vector<int32_t> prompt;   ///< at least one token, as Tokenizer::encode_prompt() makes them
  GenerateOptions options = {};  ///< on_token and on_text are not used
  int64_t samples = 1;   ///< texts after the prompt, at most `slots`; sample i has the random numbers of (seed, i)
  int64_t priority = 0;  ///< of the requests that wait for slots, those with the lowest number are first
  std::optional<int64_t> logprobs = {};         ///< log-probabilities of drawn tokens, with this number of `top`
  std::optional<int64_t> prompt_logprobs = {};  ///< the same for the prompt, whose chunks are then all computed
  /// Called on the engine's thread after each step that added to a sample. It must return soon. The request fails with
  /// what it throws.
  std::function<void(const EngineEvent&)> on_event = {};
  /// Called once on the engine's thread after the last event, with the result or with what failed. Handle::wait()
  /// throws what it throws.
  std::function<void(const EngineResult*, std::exception_ptr)> on_done = {};
};

/// Too many requests wait, or the engine has stopped.
class ALIBI_API EngineBusy : public Error {
 public:
  using Error::Error;
};

struct EngineStats {
  int64_t running = 0, waiting = 0;  ///< texts with a slot, requests without
  int64_t requests = 0, cancelled = 0, failed = 0;
  int64_t steps = 0;
  int64_t prompt_tokens = 0, reused_tokens = 0, generated_tokens = 0;
  int64_t cache_bytes = 0;   ///< keys and values of all texts
  int64_t prefix_bytes = 0;  ///< keys and values that are kept for later prompts
  int64_t evicted_keys = 0;
  double worst_share = 0;  ///< largest share of a row's weight that evicted keys could have had, in any text
  double seconds = 0;      ///< spent in steps
};

/// Reads prompts and generates texts on a thread of its own. Each step reads the weights once for all texts: one token
/// of each text that grows, and chunks of prompts, which take turns, up to step_tokens.
///
/// A request has the same tokens, texts and log-probabilities, bit for bit, whatever other requests there are and
/// however many threads compute: rows of products are computed independently, prompts are divided at multiples of
/// chunk_tokens, and prefixes are shared at these places only. Its tokens may differ from those of
/// LanguageModel::generate() by the rounding of larger products.
class ALIBI_API Engine {
 public:
  /// A request that was submitted. Destroying it does not cancel the request.
  class ALIBI_API Handle {
   public:
    /// Waits for the end. Throws what the request failed with. Never call it on the engine's thread.
    const EngineResult& wait() const;
    /// Returns false if the request has not ended after this time.
    bool wait_for(double seconds) const;
    /// Ends the request before the next step. Has no effect after its end.
    void cancel() const;

   private:
    friend class Engine;
    friend struct core::Access;
    struct State;
    ALIBI_HIDDEN explicit Handle(std::shared_ptr<State> state);
    std::shared_ptr<State> state_;
  };

  /// Keeps a reference to the model. Throws UsageError for an option that is out of range, and what Context throws.
  explicit Engine(const LanguageModel& model, const EngineOptions& options = {});
  /// Cancels all requests and waits for the end of the step.
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  /// May be called from any thread. Throws UsageError for an invalid request, and EngineBusy.
  Handle submit(EngineRequest request);
  /// Refuses further requests. Those that were submitted are finished.
  void close();

  EngineStats stats() const;
  const LanguageModel& model() const;
  const EngineOptions& options() const;
  /// Maximum number of tokens of a text, prompt included; absent if there is no limit.
  std::optional<int64_t> max_tokens() const;

 private:
  struct State;
  std::shared_ptr<State> state_;
};

}  // namespace alibi
