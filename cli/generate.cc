// alibi generate: text from a model, of any length.
#include <fmt/format.h>

#include <chrono>
#include <cstdio>
#include <memory>

#include "alibi/language_model.h"
#include "commands.h"
#include "common.h"
#include "core/check.h"

namespace alibi::cli {
namespace {

struct Options : CommonOptions {
  std::string model;
  std::string prompt;
  GenerateOptions generate;
};

void run(Options options) {
  options.apply();
  options.generate.seed = options.seed;
  const LanguageModel model = LanguageModel::load(options.model);

  const auto start = std::chrono::steady_clock::now();
  fmt::print("{}", options.prompt);
  std::fflush(stdout);
  options.generate.on_text = [](std::string_view text) {
    const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size() && std::fflush(stdout) == 0;
    check(written, "[generate] standard output cannot be written to");
    return true;
  };
  const std::string text = model.generate(options.prompt, options.generate);
  fmt::print("\n");
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;

  options.write_json({{"model", options.model},
                      {"prompt", options.prompt},
                      {"text", text},
                      {"max_tokens", options.generate.max_tokens},
                      {"temperature", options.generate.temperature},
                      {"top_k", options.generate.top_k},
                      {"top_p", options.generate.top_p},
                      {"seed", options.seed},
                      {"seconds", seconds.count()}});
}

}  // namespace

void add_generate(CLI::App& app) {
  auto options = std::make_shared<Options>();
  GenerateOptions& generate = options->generate;
  CLI::App* command = app.add_subcommand("generate", "Write text with a model, past its training length if asked");
  command->add_option("MODEL", options->model, "Model folder")->required()->type_name("");
  command->add_option("--prompt", options->prompt, "Text to go on from [the start of a document]")->type_name("TEXT");
  add_count(*command, "--tokens", generate.max_tokens, "How many tokens to write")->capture_default_str();
  add_number(*command, "--temperature", generate.temperature, "1: as the model says; lower: safer; 0: most likely only")
      ->capture_default_str();
  command->add_option("--top-k", generate.top_k, "Draw from the N most likely tokens; 0: from all")
      ->type_name("N")
      ->check(CLI::NonNegativeNumber.description(""))
      ->capture_default_str();
  add_number(*command, "--top-p", generate.top_p, "Draw from the likeliest tokens of this summed probability")
      ->capture_default_str();
  add_common(*command, *options);
  command->footer(
      "Examples:\n"
      "  alibi generate model/ --prompt 'Call me' --tokens 2000\n"
      "  alibi generate model/ --temperature 0.7 --seed 3 > text.txt");
  command->callback([options] { run(*options); });
}

}  // namespace alibi::cli
