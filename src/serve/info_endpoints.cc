// Endpoints about the server and its models, and those of the tokenizer.
#include <fmt/format.h>

#include <charconv>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "alibi/version.h"
#include "serve/api.h"
#include "text/chat_template.h"

namespace alibi::serve {

/// The page at /, where people try the model. CMake makes it from page.html.
std::string_view page();

namespace {

/// Replaces %2F and the like.
std::string decoded(std::string_view path) {
  std::string text;
  for (size_t i = 0; i < path.size(); ++i) {
    unsigned byte = 0;
    const char* const digits = path.data() + i + 1;
    if (path[i] == '%' && path.size() - i > 2 && std::from_chars(digits, digits + 2, byte, 16).ptr == digits + 2) {
      text += static_cast<char>(byte);
      i += 2;
    } else {
      text += path[i];
    }
  }
  return text;
}

/// A field of the engine's statistics as a number of a metric.
template <auto field>
double number_in(const EngineStats& stats) {
  return static_cast<double>(stats.*field);
}

OrderedJson model_json(const ServedModel& model) {
  const LanguageModelConfig& config = model.model().config();
  auto uses = OrderedJson::array({"embeddings"});
  if (model.generates()) uses.push_back("completions");
  if (model.reranks()) uses.push_back("rerank");
  return {{"id", model.name()},
          {"object", "model"},
          {"created", model.created()},
          {"owned_by", "alibi"},
          {"max_model_len", or_null(model.max_tokens())},
          {"capabilities", std::move(uses)},
          {"parameters", model.model().parameter_count()},
          {"weight_bytes", model.model().weight_bytes()},
          {"train_length", config.train_length},
          {"position", name_of(config.transformer.position)},
          {"vocab_size", config.vocab_size},
          {"width", config.transformer.d_model}};
}

}  // namespace

void Api::show_page(const HttpRequest&, const Responding& responder) {
  responder->reply({200,
                    std::string(page()),
                    "text/html; charset=utf-8",
                    {{"Content-Security-Policy",
                      "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; connect-src 'self'; "
                      "img-src data:; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"}}});
}

void Api::health(const HttpRequest&, const Responding& responder) {
  if (closed_) throw ApiError{503, "the server is stopping", "", "stopping"};
  responder->reply(json_reply({{"status", "ok"}}));
}

void Api::models(const HttpRequest&, const Responding& responder) {
  auto data = OrderedJson::array();
  for (const auto& model : models_) data.push_back(model_json(*model));
  responder->reply(json_reply({{"object", "list"}, {"data", std::move(data)}}));
}

void Api::model(const HttpRequest& request, const Responding& responder) {
  const std::string_view path = request.path;
  responder->reply(json_reply(model_json(model_named(decoded(path.substr(endpoint_of(path).size()))))));
}

void Api::props(const HttpRequest&, const Responding& responder) {
  auto all = OrderedJson::array();
  auto templates = OrderedJson::array();
  for (const text::ChatTemplate& chat : text::chat_templates()) templates.push_back(chat.name);
  for (const auto& model : models_) {
    OrderedJson one = model_json(*model);
    one["has_tokenizer"] = model->model().has_tokenizer();
    one["eos_token"] = or_null(model->end_of_text_name());
    one["pooling"] = name_of(model->pooling());
    one["slots"] = model->slots();
    one["queue"] = model->queue();
    if (model->generates()) {
      const EngineOptions& engine = model->engine().options();
      one["chat_template"] = model->chat_template();
      one["step_tokens"] = engine.step_tokens;
      one["chunk_tokens"] = engine.chunk_tokens;
      one["prefix_bytes"] = engine.prefix_bytes;
      one["memory_per_slot"] = or_null(engine.context.memory);
      one["eviction_tolerance"] = or_null(engine.context.eviction_tolerance);
    }
    all.push_back(std::move(one));
  }
  responder->reply(json_reply({{"server", "alibi"},
                               {"version", ALIBI_VERSION},
                               {"total_slots", models_.front()->slots()},
                               {"chat_templates", std::move(templates)},
                               {"models", std::move(all)}}));
}

void Api::write_metrics(const HttpRequest&, const Responding& responder) {
  std::string text;
  metrics_.write(text);
  struct Series {
    const char* name;
    const char* type;
    const char* help;
    double (*value)(const EngineStats&);
  };
  static constexpr Series series[] = {
      {"alibi_running", "gauge", "Texts that are read or generated.", number_in<&EngineStats::running>},
      {"alibi_waiting", "gauge", "Requests that wait for a slot.", number_in<&EngineStats::waiting>},
      {"alibi_engine_requests_total", "counter", "Prompts that were submitted.", number_in<&EngineStats::requests>},
      {"alibi_engine_cancelled_total", "counter", "Prompts whose requests were cancelled.",
       number_in<&EngineStats::cancelled>},
      {"alibi_engine_failed_total", "counter", "Prompts whose requests failed.", number_in<&EngineStats::failed>},
      {"alibi_engine_steps_total", "counter", "Steps, each of which reads the weights once.",
       number_in<&EngineStats::steps>},
      {"alibi_engine_seconds_total", "counter", "Seconds spent in steps.", number_in<&EngineStats::seconds>},
      {"alibi_prompt_tokens_total", "counter", "Tokens of prompts that were computed.",
       number_in<&EngineStats::prompt_tokens>},
      {"alibi_reused_tokens_total", "counter", "Tokens of prompts that an earlier prompt had left.",
       number_in<&EngineStats::reused_tokens>},
      {"alibi_generated_tokens_total", "counter", "Tokens that were generated and read.",
       number_in<&EngineStats::generated_tokens>},
      {"alibi_cache_bytes", "gauge", "Keys and values of all texts.", number_in<&EngineStats::cache_bytes>},
      {"alibi_prefix_bytes", "gauge", "Keys and values that are kept for later prompts.",
       number_in<&EngineStats::prefix_bytes>},
      {"alibi_evicted_keys_total", "counter", "Keys that were evicted.", number_in<&EngineStats::evicted_keys>},
      {"alibi_evicted_worst_share", "gauge", "Largest share of a row's weight that evicted keys could have had.",
       number_in<&EngineStats::worst_share>},
  };
  for (const Series& one : series) {
    write_header(text, one.name, one.type, one.help);
    for (const auto& model : models_) {
      if (model->generates())
        write_value(text, one.name, label("model", model->name()), one.value(model->engine().stats()));
    }
  }
  write_process(text);
  responder->reply({200, std::move(text), "text/plain; version=0.0.4; charset=utf-8"});
}

void Api::tokenizer_info(const HttpRequest&, const Responding& responder) {
  const ServedModel& model = *models_.front();
  const Tokenizer& tokenizer = model.tokenizer();
  const OrderedJson end = or_null(model.end_of_text_name());
  OrderedJson begin = end;
  if (const std::optional<int32_t> id = tokenizer.begin_of_text())
    begin = tokenizer.decode(std::span(&*id, 1), DecodeOptions{.skip_special_tokens = false});
  responder->reply(json_reply({{"model", model.name()},
                               {"tokenizer_class", std::string(tokenizer.kind())},
                               {"vocab_size", tokenizer.vocab_size()},
                               {"model_max_length", or_null(model.max_tokens())},
                               {"eos_token", end},
                               {"eos_token_id", or_null(model.end_of_text())},
                               {"bos_token", std::move(begin)},
                               {"pad_token", end},
                               {"chat_template", nullptr}}));
}

/// The fields of vLLM (prompt, add_special_tokens) and those of llama-server (content, add_special, with_pieces).
void Api::tokenize(const HttpRequest& request, const Responding& responder) {
  const Fields fields(request.body);
  const ServedModel& model = model_of(fields);
  const char* const key = fields.has("content") ? "content" : "prompt";
  const std::optional<std::string> text = fields.text(key);
  if (!text) fields.fail(key, "expected a text");
  const bool adds = fields.flag("add_special_tokens", fields.flag("add_special", false));
  const Tokenizer& tokenizer = model.tokenizer();
  // Clients look up the id of the end of text by its name, which is not a text for tokenizers that alibi made.
  const std::vector<int32_t> ids = *text == model.end_of_text_name() ? std::vector<int32_t>{*model.end_of_text()}
                                   : adds                            ? tokenizer.encode_prompt(*text)
                                          : tokenizer.encode(*text, {.add_special_tokens = false});
  const bool with_pieces = fields.flag("with_pieces", false), with_texts = fields.flag("return_token_strs", false);
  constexpr size_t max_pieces = size_t{1} << 17;
  if ((with_pieces || with_texts) && ids.size() > max_pieces) {
    fields.fail(with_pieces ? "with_pieces" : "return_token_strs",
                fmt::format("and the text has {} tokens, expected at most {}", ids.size(), max_pieces));
  }
  auto tokens = OrderedJson::array();
  auto texts = OrderedJson::array();
  TokenPieces pieces(model);
  for (const int32_t id : ids) {
    OrderedJson token = id;
    if (with_pieces || with_texts) {
      OrderedJson piece = pieces.peek(id);
      pieces.add(id);
      if (with_pieces) token = {{"id", id}, {"piece", piece}};
      if (with_texts) texts.push_back(std::move(piece));
    }
    tokens.push_back(std::move(token));
  }
  OrderedJson all{{"tokens", std::move(tokens)}, {"count", ids.size()}, {"max_model_len", or_null(model.max_tokens())}};
  if (with_texts) all["token_strs"] = std::move(texts);
  responder->reply(json_reply(all));
}

void Api::detokenize(const HttpRequest& request, const Responding& responder) {
  const Fields fields(request.body);
  const ServedModel& model = model_of(fields);
  const std::vector<int32_t> ids = fields.tokens("tokens");
  model.tokenizer();
  const std::string text = ids.empty() ? "" : model.text_of(model.prompt({.ids = ids}, "tokens"));
  responder->reply(json_reply({{"prompt", text}, {"content", text}}));
}

}  // namespace alibi::serve
