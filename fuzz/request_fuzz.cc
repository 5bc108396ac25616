// Bodies of requests to the server: the first byte chooses the endpoint. Every body gets an answer, which says 200 or
// what is wrong with the request.
#include <fmt/format.h>

#include <condition_variable>
#include <iterator>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>

#include "harness.h"
#include "json_mutator.h"
#include "models.h"
#include "serve/api.h"
#include "target.h"

namespace alibi::fuzz {
namespace {

constexpr const char* kPaths[] = {"/v1/completions", "/v1/chat/completions", "/v1/embeddings", "/pooling", "/v1/rerank",
                                  "/tokenize",       "/detokenize",          "/v1/responses"};

/// Waits for the end of the answer.
class Answer : public serve::Responder {
 public:
  void reply(serve::Reply reply) override {
    const std::lock_guard lock(mutex_);
    if (!reply_) reply_ = std::move(reply);
    ended_.notify_all();
  }
  void begin_events() override {}
  void event(std::string_view) override {}
  void end_events(std::string_view last) override { reply({200, std::string(last)}); }
  void fail(const std::exception_ptr& why) noexcept override { reply(serve::api_error_for(why).reply()); }
  void on_cancel(std::function<void()>) override {}
  void note(const std::string&, serve::OrderedJson) override {}

  serve::Reply wait() {
    std::unique_lock lock(mutex_);
    ended_.wait(lock, [this] { return reply_.has_value(); });
    return *reply_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable ended_;
  std::optional<serve::Reply> reply_;
};

/// A model that generates and one that gives vectors, with texts of at most 40 tokens.
struct Served {
  std::optional<serve::Api> api;

  Served() {
    serve::ServedModelOptions options;
    options.engine = {.slots = 4, .step_tokens = 16, .chunk_tokens = 8, .queue = 8, .max_tokens = 40};
    serve::Api::Models models;
    LanguageModelConfig decoder = small_configs().front(), encoder = decoder;
    encoder.transformer.attention.causal = false;
    encoder = with_vocab_size(encoder, decoder.vocab_size);
    models.push_back(std::make_unique<serve::ServedModel>("a", small_model(decoder), options));
    models.push_back(std::make_unique<serve::ServedModel>("b", small_model(encoder), options));
    api.emplace(std::move(models), serve::ApiOptions{.max_inputs = 8, .default_max_tokens = 8});
  }
};

bool run(std::string_view input) {
  static auto* const served = new Served;  // its threads run until the process ends
  const Choice choice = choose(input, static_cast<unsigned>(std::size(kPaths)));
  const auto answer = std::make_shared<Answer>();
  served->api->handle(
      {.method = "POST", .path = kPaths[choice.kind], .authorization = "", .body = std::string(choice.content)},
      answer);
  const serve::Reply reply = answer->wait();
  demand(reply.status == 200 || reply.status == 400 || reply.status == 404 || reply.status == 429,
         fmt::format("the status is 200, 400, 404 or 429: {} {}", reply.status, reply.body));
  demand(reply.status == 200 || serve::Json::parse(reply.body).at("error").at("message").is_string(),
         "an error has a message");
  return reply.status == 200;
}

std::vector<Seed> seeds() {
  const auto of = [](unsigned kind, const char* name, const char* body) { return Seed{name, chosen(kind, body)}; };
  return {
      of(0, "completion", R"({"prompt": "a b", "max_tokens": 5, "temperature": 0.5, "top_p": 0.9, "seed": 3, "n": 2})"),
      of(0, "tokens", R"({"prompt": [[1, 2], [3]], "max_tokens": 1, "echo": true, "logprobs": 2, "temperature": 0})"),
      of(0, "stream",
         R"({"prompt": ["a"], "stream": true, "stop": ["b", "c"], "stream_options": {"include_usage": true}})"),
      of(1, "chat",
         R"({"messages": [{"role": "user", "content": "a"}], "chat_template": "plain", "logprobs": true, "top_logprobs": 1, "max_tokens": 4})"),
      of(1, "parts", R"({"messages": [{"role": "system", "content": "b"}, {"role": "user", "content":
                         [{"type": "text", "text": "a"}]}], "stream": true, "chat_template": "chatml"})"),
      of(2, "embedding", R"({"input": ["a b", "c"], "encoding_format": "base64", "model": "a"})"),
      of(3, "pooling", R"({"input": [1, 2, 3], "pooling": "last", "normalize": true})"),
      of(5, "tokenize", R"({"prompt": "a b", "add_special_tokens": true, "return_token_strs": true})"),
      of(5, "pieces", R"({"content": "a b", "with_pieces": true})"),
      of(6, "detokenize", R"({"tokens": [1, 2, 3]})"),
      of(7, "response", R"({"input": [{"role": "user", "content": [{"type": "input_text", "text": "a"}]}],
                            "instructions": "b", "chat_template": "plain", "max_output_tokens": 3, "stream": true, "top_logprobs": 1})"),
  };
}

}  // namespace

Target request() { return {"request", run, seeds, mutate_json}; }

}  // namespace alibi::fuzz
