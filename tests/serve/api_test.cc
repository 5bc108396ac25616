// The endpoints without the network: fields of requests, and answers (tests/cli/serve_test.py has the rest).
#include "serve/api.h"

#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "serve/fields.h"
#include "small_config.h"
#include "testing.h"

namespace alibi::serve {
namespace {

/// The error that the call throws.
template <class Call>
ApiError error_of(const Call& call) {
  try {
    call();
  } catch (const ApiError& error) {
    return error;
  }
  return {0, "no error"};
}

TEST(Fields, GiveValuesOfTheirTypes) {
  const Fields fields(R"({"a": 3, "b": 2.5, "c": true, "d": "x", "e": ["x", "y"], "f": null, "g": [1, 2],
                          "h": [[1], "x"]})");
  EXPECT_EQ(fields.integer("a", 0), 3);
  EXPECT_EQ(fields.number("a", 0, 5), 3.0);
  EXPECT_EQ(fields.number("b", 0, 5), 2.5);
  EXPECT_TRUE(fields.flag("c", false));
  EXPECT_EQ(fields.text("d"), "x");
  EXPECT_EQ(fields.texts("d"), std::vector<std::string>{"x"});
  EXPECT_EQ(fields.texts("e"), (std::vector<std::string>{"x", "y"}));
  EXPECT_FALSE(fields.has("f"));
  EXPECT_FALSE(fields.integer("f", 0).has_value());
  EXPECT_TRUE(fields.flag("none", true));
  EXPECT_EQ(fields.tokens("g"), (std::vector<int32_t>{1, 2}));
  ASSERT_EQ(fields.inputs("h").size(), 2u);
  EXPECT_EQ(fields.inputs("h")[0].ids, std::vector<int32_t>{1});
  EXPECT_EQ(fields.inputs("h")[1].text, "x");
  EXPECT_EQ(fields.inputs("g").size(), 1u);
}

/// JSON has one type of numbers: an integer may be written with a fraction of zero or an exponent.
TEST(Fields, IntegersMayBeWrittenAsDecimals) {
  const Fields fields(R"({"a": 10.0, "b": 1e3, "c": [104.0, 105], "d": [[1.0]], "e": 9.2e18, "f": 2.5, "g": 1e300,
                          "h": 9223372036854775808, "i": -9223372036854775808, "j": 9223372036854775807})");
  EXPECT_EQ(fields.integer("a", 0), 10);
  EXPECT_EQ(fields.integer("b", 0, 1000), 1000);
  EXPECT_EQ(fields.tokens("c"), (std::vector<int32_t>{104, 105}));
  EXPECT_EQ(fields.inputs("d")[0].ids, std::vector<int32_t>{1});
  EXPECT_EQ(fields.integer("e", 0), 9200000000000000000);
  EXPECT_EQ(fields.integer("i", INT64_MIN), INT64_MIN);
  EXPECT_EQ(fields.integer("j", INT64_MIN), INT64_MAX);
  EXPECT_EQ(error_of([&] { fields.integer("f", 0); }).message, "f is 2.5, expected an integer of at least 0");
  EXPECT_EQ(error_of([&] { fields.integer("g", 0); }).message,
            "g is 1e+300, expected an integer of at most 9223372036854775807");
  EXPECT_EQ(error_of([&] { fields.integer("h", INT64_MIN); }).message,
            "h is 9223372036854775808, expected an integer of at most 9223372036854775807");
}

TEST(Fields, ErrorsNameTheField) {
  const Fields fields(R"({"a": 3, "b": "text", "c": 18446744073709551615, "d": [], "e": [1, -1], "g": [[]],
                          "h": {"i": 1}, "f": null})");
  const auto expect = [](const ApiError& error, const std::string& field, std::string_view part) {
    EXPECT_EQ(error.status, 400);
    EXPECT_EQ(error.param, field);
    EXPECT_NE(error.message.find(part), std::string::npos) << error.message;
    EXPECT_NE(error.message.find(field), std::string::npos) << error.message;
  };
  expect(error_of([&] { fields.integer("a", 4); }), "a", "at least 4");
  expect(error_of([&] { fields.integer("a", 0, 2); }), "a", "0 to 2");
  expect(error_of([&] { fields.integer("b", 0); }), "b", "text");
  expect(error_of([&] { fields.integer("c", 0); }), "c", "integer");
  expect(error_of([&] { fields.number("b", 0, 1); }), "b", "0 to 1");
  expect(error_of([&] { fields.flag("a", true); }), "a", "true or false");
  expect(error_of([&] { fields.text("a"); }), "a", "a text");
  expect(error_of([&] { fields.texts("e"); }), "e", "list of texts");
  expect(error_of([&] { fields.tokens("e"); }), "e", "list of tokens");
  expect(error_of([&] { fields.inputs("d"); }), "d", "a list of either");
  expect(error_of([&] { fields.inputs("e"); }), "e", "tokens");
  expect(error_of([&] { fields.at("none"); }), "none", "missing");
  expect(error_of([&] { fields.at("f"); }), "f", "null");
  expect(error_of([&] { fields.expect("a", {0, 4}); }), "a", "only 0");
  expect(error_of([&] { Fields(fields.at("h"), "h").text("i"); }), "h.i", "a text");
  EXPECT_EQ(error_of([] { Fields("[]"); }).code, "invalid_json");
  EXPECT_EQ(error_of([] { Fields("{\"a\": 1"); }).code, "invalid_json");
  EXPECT_EQ(error_of([] { Fields("{\"a\": \"\xff\"}"); }).code, "invalid_json");
}

/// Keeps the answer.
class Kept : public Responder {
 public:
  void reply(Reply given) override {
    const std::lock_guard lock(mutex_);
    if (!reply_) reply_ = std::move(given);
    changed_.notify_all();
  }
  void begin_events() override {}
  void event(std::string_view) override {
    const std::lock_guard lock(mutex_);
    ++events_;
    changed_.notify_all();
  }
  void end_events(std::string_view last) override {
    event(last);
    reply({200, std::string(last)});
  }
  void on_cancel(std::function<void()> cancel) override {
    const std::lock_guard lock(mutex_);
    cancel_ = std::move(cancel);
  }
  void note(const std::string&, OrderedJson) override {}
  void fail(const std::exception_ptr& why) noexcept override { reply(api_error_for(why).reply()); }

  Reply wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return reply_.has_value(); });
    return *reply_;
  }
  /// Waits for events, then behaves like a client that has gone.
  void leave_after(int events) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return events_ >= events; });
    const std::function<void()> cancel = cancel_;
    lock.unlock();
    cancel();
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::optional<Reply> reply_;
  std::function<void()> cancel_;
  int events_ = 0;
};

std::unique_ptr<Api> small_api(const ApiOptions& options = {}) {
  LanguageModelConfig config = test::small_config(1, 16, 2);
  Api::Models models;
  models.push_back(std::make_unique<ServedModel>("m", LanguageModel(config, 1), ServedModelOptions()));
  return std::make_unique<Api>(std::move(models), options);
}

Reply answer_of(Api& api, const std::string& path, const std::string& body, const std::string& authorization = "") {
  const auto kept = std::make_shared<Kept>();
  api.handle({.method = "POST", .path = path, .authorization = authorization, .body = body}, kept);
  return kept->wait();
}

TEST(Api, AnswersAndRefuses) {
  const auto api = small_api();
  const Reply reply = answer_of(*api, "/v1/completions", R"({"prompt": "a", "max_tokens": 3, "ignore_eos": true})");
  EXPECT_EQ(reply.status, 200);
  EXPECT_EQ(Json::parse(reply.body)["usage"]["completion_tokens"], 3);
  EXPECT_EQ(answer_of(*api, "/v1/completions", "{}").status, 400);
  EXPECT_EQ(answer_of(*api, "/v1/none", "{}").status, 404);
  EXPECT_EQ(answer_of(*api, "/v1/models", "{}").status, 405);
  EXPECT_EQ(answer_of(*api, "/v1/models", "{}").headers.at("Allow"), "GET, HEAD");
  EXPECT_EQ(Api::endpoint_of("/v1/models/a/b"), "/v1/models/");
  for (const char* path : {"/v1/model", "/health/", "/x", "//"}) EXPECT_EQ(Api::endpoint_of(path), "other") << path;
  api->close();
  EXPECT_EQ(answer_of(*api, "/v1/completions", R"({"prompt": "a"})").status, 503);
}

TEST(Api, EventsOfAResponseAddUpToIt) {
  const auto api = small_api();
  const std::string fields = R"({"input": "a", "max_output_tokens": 3, "ignore_eos": true, "seed": 1, )"
                             R"("top_logprobs": 1, "chat_template": "plain")";
  const Json whole = Json::parse(answer_of(*api, "/v1/responses", fields + "}").body);
  ASSERT_EQ(whole["status"], "incomplete") << whole;
  EXPECT_EQ(whole["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(whole["usage"]["output_tokens"], 3);
  EXPECT_EQ(whole["output"][0]["content"][0]["logprobs"].size(), 3u);
  const Json last = Json::parse(answer_of(*api, "/v1/responses", fields + R"(, "stream": true})").body);
  EXPECT_EQ(last["type"], "response.incomplete");
  EXPECT_GE(last["sequence_number"], 7);
  EXPECT_EQ(last["response"]["output"][0]["content"], whole["output"][0]["content"]);
  for (const char* more :
       {R"("tools": [{}])", R"("text": {"format": {"type": "json_schema"}})", R"("store": true, "n": 2)"}) {
    EXPECT_EQ(answer_of(*api, "/v1/responses", fields + ", " + more + "}").status, 400) << more;
  }
}

TEST(Api, ComparesKeys) {
  const auto api = small_api({.api_key = "secret"});
  for (const auto& [given, expected] :
       {std::pair("", 401), std::pair("Bearer ", 401), std::pair("Bearer secre", 401), std::pair("Bearer secrett", 401),
        std::pair("bearer secret", 401), std::pair("Bearer secret", 200)}) {
    EXPECT_EQ(answer_of(*api, "/tokenize", R"({"prompt": "a"})", given).status, expected) << given;
  }
}

TEST(Api, AClientThatLeavesCancelsItsRequest) {
  const auto api = small_api();
  const auto kept = std::make_shared<Kept>();
  api->handle({.method = "POST",
               .path = "/v1/completions",
               .authorization = "",
               .body = R"({"prompt": "a", "max_tokens": 1000000000, "stream": true, "ignore_eos": true})"},
              kept);
  kept->leave_after(3);
  EXPECT_NE(kept->wait().body.find("cancelled"), std::string::npos);
}

}  // namespace
}  // namespace alibi::serve
