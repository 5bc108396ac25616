// alibi generate: text from a model, of any length.
#include "alibi/generate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <utility>

#include "commands.h"
#include "common.h"
#include "context_limits.h"
#include "core/check.h"
#include "core/files.h"
#include "generate/sampling.h"
#include "report/format.h"
#include "stop_signals.h"
#include "text/documents.h"
#include "text/text_encoding.h"

namespace alibi::cli {
namespace {

struct GenerateCommand : CommonOptions {
  std::string model;
  std::string prompt, prompt_file;
  int64_t top_k = 0;
  int64_t samples = 1;
  Interpolation interpolation;
  ContextOptions context;
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

const char* name_of(GenerationEnd end) {
  switch (end) {
    case GenerationEnd::tokens:
      return "tokens";
    case GenerationEnd::end_of_text:
      return "end_of_text";
    case GenerationEnd::stop:
      return "stop";
    case GenerationEnd::callback:
      return "interrupted";  // what ours stops for
  }
  return "";
}

nlohmann::ordered_json sample_json(const Generation& sample) {
  return {{"text", well_formed(sample.text)}, {"not_utf8", not_utf8(sample.text)},
          {"tokens", sample.tokens},          {"ended", name_of(sample.end)},
          {"seconds", sample.seconds},        {"tokens_per_second", sample.tokens_per_second()}};
}

/// Texts after a prompt, shown while they grow, until a signal comes.
std::vector<Generation> write_samples(const GenerateCommand& options, Prompt prompt) {
  std::vector<Generation> samples;
  const auto write = [&](auto&& from) {
    if (StopSignals::received() != 0) return;
    const auto sample = static_cast<int64_t>(samples.size());
    if (options.samples > 1) say("--- {} of {}\n", sample + 1, options.samples);
    say_text(well_formed(options.prompt));
    flush_output();
    samples.push_back(std::forward<decltype(from)>(from).go_on(options.generate, sample));
    say_text("\n");
  };
  for (int64_t i = 1; i < options.samples; ++i) write(prompt);
  write(std::move(prompt));  // the last one needs no copy
  return samples;
}

void run_generate(GenerateCommand options) {
  options.apply();
  options.prompt = read_prompt(options);
  options.generate.seed = options.seed;
  options.generate.top_k = static_cast<int>(options.top_k);
  check_options(options.generate);
  check_context_limits("generate", options.context);
  options.generate.on_text = [](std::string_view text) {
    say_text(well_formed(text));
    flush_output();
    check_output();  // nothing else is left of the work
    return true;
  };
  options.generate.on_token = [](int32_t) { return StopSignals::received() == 0; };

  LanguageModel model = LanguageModel::load(options.model);
  model.set_interpolation(options.interpolation);
  const auto start = std::chrono::steady_clock::now();
  Prompt prompt(model, options.prompt, options.context);
  const int64_t prompt_tokens = prompt.tokens();
  const double prompt_seconds = prompt.seconds();
  const StopSignals signals;  // from here on there is something to finish
  const std::vector<Generation> samples = write_samples(options, std::move(prompt));
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;

  auto all = nlohmann::ordered_json::array();
  int64_t tokens = 0, cache_bytes = 0;
  double writing = 0;
  ReleaseCertificate certificate;  // of the sample with the worst
  for (const Generation& sample : samples) {
    all.push_back(sample_json(sample));
    tokens += sample.tokens;
    writing += sample.seconds;
    cache_bytes = std::max(cache_bytes, sample.cache_bytes);
    if (certificate.keys == 0 || sample.certificate.worst > certificate.worst) certificate = sample.certificate;
  }
  if (isatty(STDERR_FILENO) == 1) {
    fmt::print(stderr, "{} tokens at {} tokens/s, after a prompt of {} in {}\n", format_integer(tokens),
               format_count(static_cast<double>(tokens) / writing), format_integer(prompt_tokens),
               format_duration(prompt_seconds));
    fmt::print(stderr, "{}", describe_released(certificate));
  }
  nlohmann::ordered_json json = {{"model", options.model},
                                 {"prompt", well_formed(options.prompt)},
                                 {"prompt_tokens", prompt_tokens},
                                 {"prompt_seconds", prompt_seconds}};
  json.update(samples.empty() ? nlohmann::ordered_json::object() : all.front());
  json.update({{"max_tokens", options.generate.max_tokens},
               {"temperature", options.generate.temperature},
               {"top_k", options.generate.top_k},
               {"top_p", options.generate.top_p},
               {"min_p", options.generate.min_p},
               {"repetition_penalty", options.generate.repetition_penalty},
               {"stop", options.generate.stop},
               {"interpolate", interpolation_json(options.interpolation)},
               {"seed", options.seed},
               {"seconds", seconds.count()},
               {"cache_bytes", cache_bytes},
               {"released", released_json(options.context, certificate)}});
  if (options.samples > 1) json["samples"] = all;
  options.write_json(json);
  if (StopSignals::received() != 0) {
    flush_output();
    throw Interrupted{StopSignals::received()};
  }
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
  command.count("--tokens", generate.max_tokens, "How many tokens to write", 0);
  command.number("--temperature", generate.temperature, "1: as the model says; lower: safer; 0: most likely only");
  command.count("--top-k", options->top_k, "Draw from the N most likely tokens; 0: from all", 0, INT32_MAX);
  command.number("--top-p", generate.top_p, "Draw from the likeliest tokens of this summed probability");
  command.number("--min-p", generate.min_p, "Draw from tokens at least this times as likely as the likeliest");
  command.number("--repetition-penalty", generate.repetition_penalty,
                 "Above 1: tokens that were there before become less likely");
  command.repeated("--stop", generate.stop, "TEXT", "End before this text; may be given several times");
  add_interpolation(command, options->interpolation);
  command.count("--samples", options->samples, "How many texts to write after the prompt, which is read once");
  add_context_limits(command, options->context);
  options->add_to(command);
  command.examples(
      "  alibi generate model/ --prompt 'Call me' --tokens 2000\n"
      "  alibi generate model/ --prompt 'Q: why? A:' --stop Q: --samples 3\n"
      "  alibi generate model/ --prompt-file chapter.txt --json next.json\n"
      "  alibi generate model/ --prompt-file book.txt --interpolate dynamic\n"
      "  alibi generate model/ --tokens 1M --memory 256MiB --json certificate.json\n"
      "  alibi generate model/ --temperature 0.7 --seed 3 > text.txt");
  command.runs([options] { run_generate(*options); });
}

}  // namespace alibi::cli
