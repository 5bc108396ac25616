// A completion: its parameters, its requests to the engine, and the collection of what they give.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "serve/fields.h"
#include "serve/http.h"
#include "serve/metrics.h"
#include "serve/model.h"
#include "serve/response.h"
#include "serve/worker.h"
#include "text/text_encoding.h"

namespace alibi::serve {

struct CompletionPrompt {
  std::vector<int32_t> ids;
  std::string text;  ///< for `echo`
};

struct CompletionParameters {
  GenerateOptions generate = {};
  int64_t n = 1;
  int64_t best_of = 1;  ///< texts that are drawn for each prompt, of which the answer has the n most likely ones
  int64_t priority = 0;
  std::optional<int64_t> logprobs = {};
  bool echo = false, stream = false, usage_in_stream = false;
  bool is_chat = false;                         ///< also for /v1/responses
  std::shared_ptr<ResponseJson> response = {};  ///< of /v1/responses: writes the answer in its format
};

/// The fields that completions and chat completions have in common.
CompletionParameters parameters_of(const Fields& fields, const ServedModel& model);

/// Throws ApiError if the product of fields that are limited each would make an answer too large.
void check_size_of_answer(const Fields& fields, std::span<const CompletionPrompt> prompts,
                          const CompletionParameters& parameters);

/// The tokens, their log-probabilities and texts, as the legacy format of completions has them, or that of chats. A
/// stream and a plain answer add the same tokens; a stream takes what it has so far after each step.
class LogprobsJson {
 public:
  /// `before`: the tokens before the first one that is added.
  LogprobsJson(const ServedModel& model, bool is_chat, std::span<const int32_t> before)
      : pieces_(model, before), is_chat_(is_chat) {}
  void add(const EngineToken& token);
  bool empty() const { return content_.empty() && tokens_.empty(); }
  OrderedJson take();

 private:
  TokenPieces pieces_;
  bool is_chat_;
  text::CharacterCount characters_;
  OrderedJson content_ = OrderedJson::array();
  OrderedJson tokens_ = OrderedJson::array(), logprobs_ = OrderedJson::array(), top_ = OrderedJson::array(),
              offsets_ = OrderedJson::array();
};

/// Submits the prompts and answers when all have ended, or piece by piece.
class Completion : public std::enable_shared_from_this<Completion> {
 public:
  /// A plain answer is composed on the thread `answers`.
  Completion(const ServedModel& model, std::shared_ptr<Responder> responder, Metrics& metrics, Worker& answers,
             std::vector<CompletionPrompt> prompts, CompletionParameters parameters);
  /// Throws ApiError, EngineBusy or UsageError if a prompt cannot be submitted.
  void start();

 private:
  struct Choice {
    std::optional<LogprobsJson> logprobs = {};  // of a stream
    std::optional<std::chrono::steady_clock::time_point> last_time = {};
  };

  void submit();
  EngineRequest request_for(size_t prompt);
  void on_event(size_t prompt, const EngineEvent& event);
  void on_done(size_t prompt, const EngineResult* result, const std::exception_ptr& why);
  void finish();
  void send(size_t index, const OrderedJson& choice);
  OrderedJson envelope(bool is_chunk) const;
  void add_tokens(LogprobsJson& to, std::span<const EngineToken> tokens) const;
  OrderedJson choice(size_t prompt, size_t sample) const;
  OrderedJson whole() const;
  OrderedJson usage() const;
  void cancel_all();

  const ServedModel& model_;
  const std::shared_ptr<Responder> responder_;
  Metrics& metrics_;
  Worker& answers_;
  const std::vector<CompletionPrompt> prompts_;
  const CompletionParameters parameters_;
  const std::string id_;
  const int64_t created_;
  const std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now();

  std::mutex mutex_;  // held while the prompts are submitted, so that no event comes before the answer has begun
  std::vector<Engine::Handle> handles_;
  std::vector<Choice> choices_;
  std::vector<EngineResult> results_;
  size_t ended_ = 0;
  bool answered_ = false, has_first_ = false;
  int64_t generated_ = 0;
};

}  // namespace alibi::serve
