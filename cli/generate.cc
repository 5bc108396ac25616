// alibi generate: text from a model, of any length.
#include <fmt/format.h>

#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "alibi/language_model.h"
#include "commands.h"
#include "common.h"
#include "core/check.h"
#include "core/files.h"
#include "text/documents.h"
#include "text/text_encoding.h"

namespace alibi::cli {
namespace {

struct GenerateCommand : CommonOptions {
  std::string model;
  std::string prompt, prompt_file;
  int64_t top_k = 0;
  GenerateOptions generate;
};

/// What the model goes on from: the option's text, standard input or a file.
std::string read_prompt(const GenerateCommand& options) {
  const std::string file = options.prompt == "-" ? "-" : options.prompt_file;
  if (file.empty()) return options.prompt;
  check_usage(file == "-" || !is_folder(file), "[generate] --prompt-file {} is a folder, expected a file", file);
  return read_documents({file}).front().text();
}

/// The bytes of a text that are no UTF-8, and where they stand in it: characters that were not completed, or that a
/// model of bytes put together wrongly.
nlohmann::ordered_json not_utf8(const std::string& text) {
  auto bytes = nlohmann::ordered_json::array();
  for (const size_t at : malformed_bytes(text)) {
    bytes.push_back({{"at", at}, {"byte", static_cast<unsigned char>(text[at])}});
  }
  return bytes;
}

void run_generate(GenerateCommand options) {
  options.apply();
  options.prompt = read_prompt(options);
  options.generate.seed = options.seed;
  options.generate.top_k = static_cast<int>(options.top_k);
  const LanguageModel model = LanguageModel::load(options.model);

  const auto start = std::chrono::steady_clock::now();
  say_text(well_formed(options.prompt));
  flush_output();
  options.generate.on_text = [](std::string_view text) {
    say_text(well_formed(text));
    flush_output();
    check_output();  // nothing else is left of the work
    return true;
  };
  const std::string text = model.generate(options.prompt, options.generate);
  say_text("\n");
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;

  options.write_json({{"model", options.model},
                      {"prompt", well_formed(options.prompt)},
                      {"text", well_formed(text)},
                      {"not_utf8", not_utf8(text)},
                      {"max_tokens", options.generate.max_tokens},
                      {"temperature", options.generate.temperature},
                      {"top_k", options.generate.top_k},
                      {"top_p", options.generate.top_p},
                      {"seed", options.seed},
                      {"seconds", seconds.count()}});
}

}  // namespace

void add_generate(CLI::App& app) {
  auto options = std::make_shared<GenerateCommand>();
  GenerateOptions& generate = options->generate;
  Command command(app, "generate", "Write text with a model, past its training length if asked");
  command.model(options->model);
  command.text("--prompt", options->prompt, "TEXT",
               "Text to go on from, -: standard input [none: the start of a document]");
  command.text("--prompt-file", options->prompt_file, "FILE",
               "The same from a file, to its last byte; -: standard input");
  command.exclude("--prompt-file", "--prompt");
  command.count("--tokens", generate.max_tokens, "How many tokens to write");
  command.number("--temperature", generate.temperature, "1: as the model says; lower: safer; 0: most likely only");
  command.count("--top-k", options->top_k, "Draw from the N most likely tokens; 0: from all", 0, INT32_MAX);
  command.number("--top-p", generate.top_p, "Draw from the likeliest tokens of this summed probability");
  options->add_to(command);
  command.examples(
      "  alibi generate model/ --prompt 'Call me' --tokens 2000\n"
      "  alibi generate model/ --prompt-file chapter.txt --json next.json\n"
      "  alibi generate model/ --temperature 0.7 --seed 3 > text.txt");
  command.runs([options] { run_generate(*options); });
}

}  // namespace alibi::cli
