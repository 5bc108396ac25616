// /v1/completions, /v1/chat/completions and /v1/responses.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "serve/api.h"
#include "serve/completion.h"
#include "text/chat_template.h"

namespace alibi::serve {
namespace {

/// The text of a message: a text, or a list of parts of which each is a text, of these types.
std::string content_of(const Fields& message, std::initializer_list<Json> types) {
  // A reply of the model that only called tools has no content.
  if (!message.has("content") && message.text("role") == "assistant") return "";
  const Json& content = message.at("content");
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) message.fail("content", "expected a text or a list of parts");
  std::string text;
  for (const Json& part : content) {
    const Fields fields(part, "content");
    fields.at("type");
    fields.expect("type", types);
    text += fields.text("text").value_or("");
  }
  return text;
}

std::vector<text::ChatMessage> messages_of(const Fields& fields, const char* key, std::initializer_list<Json> types) {
  std::vector<text::ChatMessage> messages;
  const Json& given = fields.at(key);
  if (!given.is_array() || given.empty()) fields.fail(key, "expected a list of at least one message");
  for (const Json& message : given) {
    const Fields one(message, fmt::format("{}[{}]", key, messages.size()));
    one.expect("type", {"message"});
    messages.push_back({one.text("role").value_or(""), content_of(one, types)});
  }
  return messages;
}

/// Maximum number of the most likely tokens of a place.
int64_t max_logprobs(const ServedModel& model) { return std::min(1000, model.model().config().vocab_size); }

}  // namespace

void Api::completions(const HttpRequest& request, const Responding& responder) {
  const Fields fields(request.body);
  const ServedModel& model = model_of(fields);
  model.engine();  // throws for an encoder
  CompletionParameters parameters = parameters_of(fields, model);
  parameters.generate.max_tokens = fields.integer("max_tokens", 0).value_or(16);
  parameters.logprobs = fields.integer("logprobs", 0, max_logprobs(model));
  parameters.echo = fields.flag("echo", false);
  parameters.best_of = fields.integer("best_of", parameters.n, model.slots()).value_or(parameters.n);
  if (parameters.stream && parameters.best_of > parameters.n) {
    fields.fail("best_of", "which is not supported in a stream: the most likely text is known at the end");
  }
  fields.expect("suffix", {""});
  if (parameters.stream && parameters.echo && parameters.logprobs) {
    fields.fail("stream", "which is not supported together with echo and logprobs");
  }
  std::vector<CompletionPrompt> prompts;
  for (const TextInput& input : inputs_of(fields, "prompt")) {
    CompletionPrompt prompt{.ids = model.prompt(input, "prompt"), .text = {}};
    if (parameters.echo) prompt.text = input.text ? *input.text : model.text_of(prompt.ids);
    prompts.push_back(std::move(prompt));
  }
  complete(fields, model, responder, std::move(prompts), std::move(parameters));
}

void Api::complete(const Fields& fields, const ServedModel& model, const Responding& responder,
                   std::vector<CompletionPrompt> prompts, CompletionParameters parameters) {
  check_size_of_answer(fields, prompts, parameters);
  std::make_shared<Completion>(model, responder, metrics_, answers_, std::move(prompts), std::move(parameters))
      ->start();
}

void Api::chat(const HttpRequest& request, const Responding& responder) {
  const Fields fields(request.body);
  const ServedModel& model = model_of(fields);
  model.engine();  // throws for an encoder
  CompletionParameters parameters = parameters_of(fields, model);
  if (fields.flag("logprobs", false))
    parameters.logprobs = fields.integer("top_logprobs", 0, max_logprobs(model)).value_or(0);
  for (const char* unsupported : {"tools", "functions", "audio"}) fields.expect(unsupported, {Json::array()});
  fields.expect("modalities", {Json::array({"text"}), Json::array()});
  if (const Json* format = fields.find("response_format")) {
    Fields(*format, "response_format").expect("type", {"text"});
  }
  const char* const limit = fields.has("max_completion_tokens") ? "max_completion_tokens" : "max_tokens";
  reply(fields, model, responder, messages_of(fields, "messages", {"text"}), limit, std::move(parameters));
}

/// The next reply of the conversation. `limit`: the field with the maximum number of its tokens.
void Api::reply(const Fields& fields, const ServedModel& model, const Responding& responder,
                const std::vector<text::ChatMessage>& messages, const char* limit, CompletionParameters parameters) {
  parameters.is_chat = true;
  const std::string name = fields.text("chat_template").value_or(model.chat_template());
  const text::ChatTemplate& chat = text::chat_template(name);
  std::vector<CompletionPrompt> prompts(1);
  prompts[0].ids = model.tokenizer().encode_prompt(text::chat_prompt(chat, messages));
  if (!chat.stop.empty()) parameters.generate.stop.emplace_back(chat.stop);
  int64_t most = options_.default_max_tokens;
  if (const std::optional<int64_t> length = model.engine().max_tokens()) {
    most = std::clamp<int64_t>(*length - std::ssize(prompts[0].ids), 1, most);
  }
  parameters.generate.max_tokens = fields.integer(limit, 0).value_or(most);
  complete(fields, model, responder, std::move(prompts), std::move(parameters));
}

void Api::responses(const HttpRequest& request, const Responding& responder) {
  const Fields fields(request.body);
  const ServedModel& model = model_of(fields);
  model.engine();  // throws for an encoder
  CompletionParameters parameters = parameters_of(fields, model);
  fields.expect("n", {1});
  fields.expect("tools", {Json::array()});
  fields.expect("tool_choice", {"auto", "none"});
  fields.expect("background", {false});
  fields.expect("reasoning", {Json::object()});
  fields.expect("truncation", {"disabled"});
  for (const char* unsupported : {"previous_response_id", "conversation", "prompt"})
    fields.expect(unsupported, {Json()});
  if (const Json* text = fields.find("text")) {
    const Fields of_text(*text, "text");
    of_text.expect("verbosity", {"medium"});
    if (const Json* format = of_text.find("format")) Fields(*format, "text.format").expect("type", {"text"});
  }
  const std::vector<std::string> includes = fields.texts("include");
  for (const std::string& include : includes) {
    if (include != "message.output_text.logprobs")
      fields.fail("include", "only message.output_text.logprobs is supported");
  }
  const std::optional<int64_t> top = fields.integer("top_logprobs", 0, max_logprobs(model));
  if (top || !includes.empty()) parameters.logprobs = top.value_or(0);
  const std::optional<std::string> instructions = fields.text("instructions");
  std::vector<text::ChatMessage> messages;
  if (fields.at("input").is_string()) {
    messages.push_back({"user", *fields.text("input")});
  } else {
    messages = messages_of(fields, "input", {"input_text", "output_text"});
  }
  if (instructions) messages.insert(messages.begin(), {"system", *instructions});
  const std::optional<int64_t> most = fields.integer("max_output_tokens", 0);
  const Json* const metadata = fields.find("metadata");
  if (metadata != nullptr) Fields(*metadata, "metadata");
  parameters.response = std::make_shared<ResponseJson>(
      OrderedJson{{"instructions", or_null(instructions)},
                  {"max_output_tokens", or_null(most)},
                  {"metadata", metadata != nullptr ? OrderedJson(*metadata) : OrderedJson::object()},
                  {"parallel_tool_calls", false},
                  {"previous_response_id", nullptr},
                  {"store", false},
                  {"temperature", parameters.generate.temperature},
                  {"text", {{"format", {{"type", "text"}}}}},
                  {"tool_choice", "none"},
                  {"tools", OrderedJson::array()},
                  {"top_p", parameters.generate.top_p},
                  {"truncation", "disabled"}});
  reply(fields, model, responder, messages, "max_output_tokens", std::move(parameters));
}

}  // namespace alibi::serve
