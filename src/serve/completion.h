// A completion: its parameters, its requests to the engine, and the collection of what they give.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "serve/fields.h"
#include "serve/http.h"
#include "serve/metrics.h"
#include "serve/model.h"

namespace alibi::serve {

struct CompletionPrompt {
  std::vector<int32_t> ids;
  std::string text;  ///< for `echo`
};

struct CompletionParameters {
  GenerateOptions generate = {};
  int64_t n = 1;
  std::optional<int64_t> logprobs = {};
  bool echo = false, stream = false, usage_in_stream = false;
  bool is_chat = false;
};

/// The fields that completions and chat completions have in common.
CompletionParameters parameters_of(const Fields& fields);

/// The tokens, their log-probabilities and texts, as the legacy format of completions has them, or that of chats.
class LogprobsJson {
 public:
  LogprobsJson(const ServedModel& model, bool is_chat) : model_(model), is_chat_(is_chat) {}
  /// `before` is the token before this one, or -1.
  void add(int32_t before, const EngineToken& token);
  size_t bytes() const { return bytes_; }
  OrderedJson take();
  /// The offset, in characters, at which the next token begins.
  void start_at(int64_t characters) { characters_ = characters; }
  int64_t characters() const { return characters_; }

 private:
  const ServedModel& model_;
  bool is_chat_;
  size_t bytes_ = 0;
  int64_t characters_ = 0;
  OrderedJson content_ = OrderedJson::array();
  OrderedJson tokens_ = OrderedJson::array(), logprobs_ = OrderedJson::array(), top_ = OrderedJson::array(),
              offsets_ = OrderedJson::array();
};

/// Submits the prompts and answers when all have ended, or piece by piece.
class Completion : public std::enable_shared_from_this<Completion> {
 public:
  Completion(const ServedModel& model, std::shared_ptr<Responder> responder, Metrics& metrics,
             std::vector<CompletionPrompt> prompts, CompletionParameters parameters);
  /// Throws ApiError, EngineBusy or UsageError if a prompt cannot be submitted.
  void start();

 private:
  struct Choice {
    int32_t last = -1;  // token before the next one
    int64_t characters = 0;
    std::optional<std::chrono::steady_clock::time_point> last_time = {};
  };

  void submit();
  EngineRequest request_for(size_t prompt);
  void on_event(size_t prompt, const EngineEvent& event);
  void on_done(size_t prompt, const EngineResult* result, const std::exception_ptr& why);
  void finish();
  void send(size_t index, const OrderedJson& choice);
  OrderedJson envelope(bool is_chunk) const;
  OrderedJson choice(size_t prompt, size_t sample) const;
  OrderedJson usage() const;
  void cancel_all();

  const ServedModel& model_;
  const std::shared_ptr<Responder> responder_;
  Metrics& metrics_;
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
