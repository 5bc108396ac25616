// The endpoints of the server, without the network: requests come in and answers go to a Responder.
#pragma once

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "serve/completion.h"
#include "serve/http.h"
#include "serve/metrics.h"
#include "serve/model.h"
#include "serve/worker.h"
#include "text/chat_template.h"

namespace alibi::serve {

struct ApiOptions {
  std::string api_key = {};          ///< empty: none is needed
  int64_t max_waiting = 256;         ///< maximum number of requests whose texts wait to be encoded
  int64_t max_inputs = 2048;         ///< maximum number of texts in one request
  std::string allow_origin = {};     ///< whose pages may read answers in a browser: an origin, * for all, or none
  int64_t default_max_tokens = 512;  ///< of a chat completion that names none
};

class Api {
 public:
  using Models = std::vector<std::unique_ptr<ServedModel>>;
  using Responding = std::shared_ptr<Responder>;

  /// At least one model, with names that differ.
  Api(Models models, const ApiOptions& options);

  /// Answers a request, now or later. May be called from any thread.
  void handle(HttpRequest request, Responding responder);
  /// Refuses new requests with status 503. Those that run are finished.
  void close();
  Metrics& metrics() { return metrics_; }
  /// The path of the endpoint that answers requests for this path, e.g. /v1/models/ for that of a model; or "other".
  static std::string_view endpoint_of(std::string_view path);

 private:
  struct Route;
  static const std::vector<Route>& routes();
  bool is_authorized(const HttpRequest& request) const;
  const ServedModel& model_named(const std::string& name) const;
  /// The model that the request names, or the first one if it names none.
  const ServedModel& model_of(const Fields& fields) const;
  /// The inputs of a request. Throws ApiError if there are too many.
  std::vector<TextInput> inputs_of(const Fields& fields, const char* key) const;

  void show_page(const HttpRequest& request, const Responding& responder);
  void health(const HttpRequest& request, const Responding& responder);
  void models(const HttpRequest& request, const Responding& responder);
  void model(const HttpRequest& request, const Responding& responder);
  void write_metrics(const HttpRequest& request, const Responding& responder);
  void props(const HttpRequest& request, const Responding& responder);
  void tokenizer_info(const HttpRequest& request, const Responding& responder);
  void tokenize(const HttpRequest& request, const Responding& responder);
  void detokenize(const HttpRequest& request, const Responding& responder);
  void completions(const HttpRequest& request, const Responding& responder);
  void chat(const HttpRequest& request, const Responding& responder);
  void responses(const HttpRequest& request, const Responding& responder);
  void reply(const Fields& fields, const ServedModel& model, const Responding& responder,
             const std::vector<text::ChatMessage>& messages, const char* limit, CompletionParameters parameters);
  void complete(const Fields& fields, const ServedModel& model, const Responding& responder,
                std::vector<CompletionPrompt> prompts, CompletionParameters parameters);
  void embeddings(const HttpRequest& request, const Responding& responder);
  void pooling(const HttpRequest& request, const Responding& responder);
  void embed(const HttpRequest& request, const Responding& responder, bool as_embeddings);
  void rerank(const HttpRequest& request, const Responding& responder);

  Worker answers_{SIZE_MAX};  // composes long answers; before the models, whose engines use it
  const Models models_;
  const ApiOptions options_;
  Metrics metrics_;
  std::atomic<bool> closed_ = false;
  Worker worker_;  // encodes texts; the last member, because it uses the others
};

}  // namespace alibi::serve
