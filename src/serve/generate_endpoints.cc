// /v1/completions and /v1/chat/completions.
#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "serve/api.h"
#include "serve/completion.h"
#include "text/chat_template.h"

namespace alibi::serve {
namespace {

/// The text of a message: a text, or a list of parts of which each is a text.
std::string content_of(const Fields& message) {
  // A reply of the model that only called tools has no content.
  if (!message.has("content") && message.text("role") == "assistant") return "";
  const Json& content = message.at("content");
  if (content.is_string()) return content.get<std::string>();
  if (!content.is_array()) message.fail("content", "expected a text or a list of parts");
  std::string text;
  for (const Json& part : content) {
    const Fields fields(part, "content");
    if (fields.text("type") != "text") fields.fail("type", "only \"text\" is supported");
    text += fields.text("text").value_or("");
  }
  return text;
}

/// Maximum number of the most likely tokens of a place.
int64_t most_logprobs(const ServedModel& model) { return std::min(1000, model.model().config().vocab_size); }

}  // namespace

void Api::completions(const HttpRequest& request, const Responding& responder) {
  const Fields fields(request.body);
  const ServedModel& model = model_of(fields);
  model.engine();  // throws for an encoder
  CompletionParameters parameters = parameters_of(fields, model);
  parameters.generate.max_tokens = fields.integer("max_tokens", 0).value_or(16);
  parameters.logprobs = fields.integer("logprobs", 0, most_logprobs(model));
  parameters.echo = fields.flag("echo", false);
  fields.expect("best_of", {parameters.n});
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
  check_size_of_answer(fields, prompts, parameters);
  std::make_shared<Completion>(model, responder, metrics_, answers_, std::move(prompts), std::move(parameters))
      ->start();
}

void Api::chat(const HttpRequest& request, const Responding& responder) {
  const Fields fields(request.body);
  const ServedModel& model = model_of(fields);
  const Engine& engine = model.engine();
  CompletionParameters parameters = parameters_of(fields, model);
  parameters.is_chat = true;
  if (fields.flag("logprobs", false))
    parameters.logprobs = fields.integer("top_logprobs", 0, most_logprobs(model)).value_or(0);
  for (const char* unsupported : {"tools", "functions", "audio"}) fields.expect(unsupported, {Json::array()});
  fields.expect("modalities", {Json::array({"text"}), Json::array()});
  if (const Json* format = fields.find("response_format")) {
    Fields(*format, "response_format").expect("type", {"text"});
  }

  const std::string name = fields.text("chat_template").value_or(model.chat_template());
  const text::ChatTemplate& chat = text::chat_template(name);
  std::vector<text::ChatMessage> messages;
  const Json& given = fields.at("messages");
  if (!given.is_array() || given.empty()) fields.fail("messages", "expected a list of at least one message");
  for (const Json& message : given) {
    const Fields one(message, fmt::format("messages[{}]", messages.size()));
    messages.push_back({one.text("role").value_or(""), content_of(one)});
  }
  CompletionPrompt prompt{.ids = model.tokenizer().encode_prompt(text::chat_prompt(chat, messages)), .text = {}};
  if (!chat.stop.empty()) parameters.generate.stop.emplace_back(chat.stop);

  const std::optional<int64_t> wanted = fields.has("max_completion_tokens") ? fields.integer("max_completion_tokens", 0)
                                                                            : fields.integer("max_tokens", 0);
  int64_t most = options_.default_max_tokens;
  if (const std::optional<int64_t> limit = engine.max_tokens()) {
    most = std::clamp<int64_t>(*limit - std::ssize(prompt.ids), 1, most);
  }
  parameters.generate.max_tokens = wanted.value_or(most);
  std::vector<CompletionPrompt> prompts;
  prompts.push_back(std::move(prompt));
  check_size_of_answer(fields, prompts, parameters);
  std::make_shared<Completion>(model, responder, metrics_, answers_, std::move(prompts), std::move(parameters))
      ->start();
}

}  // namespace alibi::serve
