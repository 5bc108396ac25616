// alibi serve: models behind an HTTP port.
#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <utility>

#include "alibi/runtime.h"
#include "commands.h"
#include "common.h"
#include "context_limits.h"
#include "core/check.h"
#include "core/files.h"
#include "formats/gguf.h"
#include "formats/hub.h"
#include "formats/json.h"
#include "numbers.h"
#include "serve/network/server.h"
#include "text/chat_template.h"

namespace alibi::cli {
namespace {

struct ServeCommand {
  std::vector<std::string> models, names;
  std::optional<int64_t> threads;
  std::string api_key_file, pooling = "mean", chat_template;
  bool quiet = false;
  ModelUse use;
  serve::network::ServerOptions server;
  serve::ServedModelOptions model;
};

/// The name of a repository of the hub, a folder, or a file without its extension.
std::string name_of_model(const std::string& path) {
  std::filesystem::path last = std::filesystem::absolute(path).lexically_normal();
  if (last.filename().empty()) last = last.parent_path();
  if (std::string repository = formats::repository_of(last); !repository.empty()) return repository;
  return core::is_folder(last) ? last.filename().string() : last.stem().string();
}

/// The template that the files of a model stand for.
std::string template_of(const std::string& path) {
  const std::filesystem::path file = std::filesystem::path(path) / "tokenizer_config.json";
  if (!std::filesystem::exists(file)) return "plain";
  const formats::JsonObject config = formats::read_json_object(file);
  if (!config.has("chat_template") || !config.raw()["chat_template"].is_string()) return "plain";
  return std::string(text::chat_template_like(config.get<std::string>("chat_template")));
}

/// The key of the file or of the environment; empty if neither is given. Clients send the key in a header, which holds
/// only visible ASCII characters, so a server with another key would refuse everybody.
std::string api_key_of(const ServeCommand& options) {
  const char* const set = std::getenv("ALIBI_API_KEY");
  if (options.api_key_file.empty() && set == nullptr) return {};
  const std::string source = options.api_key_file.empty() ? "ALIBI_API_KEY" : options.api_key_file;
  std::string key = options.api_key_file.empty() ? set : core::read_file(options.api_key_file, 4096);
  while (!key.empty() && (key.back() == '\n' || key.back() == '\r')) key.pop_back();
  check_usage(!key.empty(), "[serve] the API key in {} is empty, expected a key; {}", source,
              options.api_key_file.empty() ? "unset it to start a server without a key" : "write one to the file");
  for (size_t i = 0; i < key.size(); ++i) {
    const auto byte = static_cast<unsigned char>(key[i]);
    check_usage(byte > 0x20 && byte < 0x7f,
                "[serve] the API key in {} has the byte 0x{:02x} at position {}, expected one line of ASCII letters, "
                "digits and signs without spaces",
                source, byte, i);
  }
  return key;
}

/// Browsers compare the origin with the header as a text: a path or a slash at its end would match no page.
void check_origin(const std::string& origin) {
  if (origin.empty() || origin == "*" || origin == "null") return;
  const size_t host = origin.find("://");
  const bool is_origin = host != std::string::npos && host > 0 && origin.size() > host + 3 &&
                         std::all_of(origin.begin(), origin.end(), [](char c) { return c > ' ' && c < 0x7f; }) &&
                         origin.find_first_of("/,*", host + 3) == std::string::npos;
  check_usage(is_origin,
              "[--allow-origin] found '{}', expected *, or a scheme, a host and perhaps a port: "
              "https://example.org",
              origin);
}

void run_serve(ServeCommand options) {
  isa();  // throws an Error if ALIBI_ISA is invalid
  if (options.threads) set_threads(static_cast<int>(*options.threads));
  options.use.check();
  check_context_limits("serve", options.model.engine.context);
  check_usage(options.names.size() <= options.models.size(), "[serve] {} names were given for {} models",
              options.names.size(), options.models.size());
  if (!options.chat_template.empty()) text::chat_template(options.chat_template);
  options.model.pooling = pooling_from(options.pooling);
  options.server.api.api_key = api_key_of(options);
  check_origin(options.server.api.allow_origin);
  options.server.logs_requests = !options.quiet;
  serve::Api::Models models;
  bool has_encoder = false;
  for (size_t i = 0; i < options.models.size(); ++i) {
    const std::string& path = options.models[i];
    LanguageModel model = LanguageModel::load(path);
    options.use.apply(model);
    has_encoder |= !model.config().transformer.attention.causal;
    serve::ServedModelOptions of_model = options.model;
    of_model.chat_template = options.chat_template.empty() ? template_of(path) : options.chat_template;
    models.push_back(std::make_unique<serve::ServedModel>(
        i < options.names.size() ? options.names[i] : name_of_model(path), std::move(model), of_model));
  }
  check_usage(
      has_encoder || options.model.pooling != Pooling::first,
      "[--pooling] found 'first', but {} no encoder: in a decoder the first token sees nothing of the text; take "
      "mean or last",
      models.size() == 1 ? "the model is" : "the models are");
  const bool is_open = options.server.api.api_key.empty();
  serve::network::run_server(std::move(models), options.server, [&](const std::string& url) {
    if (is_open && options.server.host != "127.0.0.1" && options.server.host != "::1" &&
        options.server.host != "localhost") {
      fmt::print(stderr, "alibi: warning: {} may be reached from other machines, and no API key is set\n", url);
    }
    say("listening on {} (open this address in a browser to try the models)\n", url);
    flush_output();
  });
}

/// An option for a number of bytes.
void add_bytes(Command& command, const std::string& name, const std::string& help, int64_t& bytes,
               int64_t most = INT64_MAX, int64_t least = 1) {
  command.value(name, "BYTES", help, [&bytes, most, least](const std::string& word) {
    std::string wrong = read_bytes(word, bytes, least);
    if (wrong.empty() && bytes > most) wrong = fmt::format("found '{}', expected at most {} bytes", word, most);
    return wrong;
  });
}

}  // namespace

void add_serve(CLI::App& app) {
  auto options = std::make_shared<ServeCommand>();
  serve::network::ServerOptions& server = options->server;
  EngineOptions& engine = options->model.engine;
  Command command(app, "serve", "Serve models over HTTP, with the API of OpenAI: texts, chats, vectors and scores");
  command.texts(options->models, true,
                "Model folders, GGUF files, or names on the Hugging Face hub; requests choose one by its name",
                "MODEL");
  command.names_models("MODEL", options->models);
  command.repeated(
      "--name", options->names, "NAME",
      "Name of a model, in the order of the models; may be repeated [the name of the folder or on the hub]");
  command.text("--host", server.host, "ADDRESS", "Address to listen on; 0.0.0.0 is every address of this machine");
  command.count("--port", server.port, "Port to listen on (0 chooses a free one)", 0, 65535);
  command.text("--api-key-file", options->api_key_file, "FILE",
               "File with the key that clients must send [ALIBI_API_KEY in the environment, else no key]");
  command.text(
      "--allow-origin", server.api.allow_origin, "ORIGIN",
      "Origin whose web pages may use the server from a browser, e.g. https://example.org, or * for all [none]");
  command.text("--chat-template", options->chat_template, "NAME",
               "Format of the prompts of chats [found in the model's tokenizer_config.json, else plain]");
  {
    std::vector<std::string> names;
    for (const text::ChatTemplate& chat : text::chat_templates()) names.emplace_back(chat.name);
    command.choices("--chat-template", std::move(names));
  }
  command.text("--pooling", options->pooling, "NAME",
               "Pooling of the final token states in vectors: mean, first (encoders only) or last",
               {"mean", "first", "last"});
  options->use.add_to(command);
  command.count("--threads", options->threads, "Number of threads; results do not depend on it [all cores]", 1, 1024);

  command.group("Engine");
  command.count("--slots", engine.slots, "Maximum number of texts that are read or generated at the same time");
  command.count("--queue", engine.queue, "Maximum number of requests that wait for a slot; further ones get status 429",
                0);
  command.count("--max-length", engine.max_tokens,
                "Maximum number of tokens of a text, prompt included (0: as many as the model's positions allow)", 0);
  command.count("--step-tokens", engine.step_tokens, "Maximum number of tokens that a step reads");
  command.count("--chunk-tokens", engine.chunk_tokens, "Number of tokens of a prompt that are read at a time", 1, 2048);
  add_bytes(command, "--prefix-memory",
            "Memory for the keys and values of prompts, for later prompts that begin alike (0 keeps none) [256MiB]",
            engine.prefix_bytes, INT64_MAX, 0);
  add_context_limits(command, engine.context);

  command.group("Limits");
  command.count("--max-connections", server.max_connections,
                "Maximum number of connections; further ones get status 503");
  add_bytes(command, "--max-body", "Maximum size of the body of a request [4MiB]", server.max_body_bytes);
  add_bytes(command, "--max-header", "Maximum size of the header of a request, trailer included [16KiB]",
            server.max_header_bytes, serve::network::header_bytes_limit);
  command.count("--max-inputs", server.api.max_inputs, "Maximum number of texts in a request");
  command.count("--default-max-tokens", server.api.default_max_tokens,
                "Maximum number of tokens of a reply in a chat that names none");
  command.number("--header-timeout", server.header_seconds, "Seconds for a client to send the header of a request");
  command.number("--body-timeout", server.body_seconds, "Seconds for a client to send the body of a request");
  command.number("--idle-timeout", server.idle_seconds, "Seconds after which a connection without a request is closed");
  command.number("--write-timeout", server.write_seconds, "Seconds for a client to take a part of the answer");
  command.number("--request-timeout", server.request_seconds, "Seconds after which a request is cancelled");
  command.number("--grace", server.grace_seconds, "Seconds that running requests have after SIGTERM");
  command.flag("--quiet", options->quiet, "Do not log requests");
  command.examples(
      "  alibi serve model/ --port 8080\n"
      "  alibi serve chat/ embedder/ reranker/ --host 0.0.0.0 --api-key-file key.txt\n"
      "  alibi serve model/ --slots 64 --memory 32MiB --eviction-tolerance 1e-7\n"
      "  curl http://127.0.0.1:8080/v1/completions -d '{\"prompt\": \"Call me\", \"max_tokens\": 20}'");
  command.runs([options] { run_serve(*options); });
}

}  // namespace alibi::cli
