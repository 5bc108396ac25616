// alibi generate: generates text of any length.
#include "alibi/generate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "commands.h"
#include "common.h"
#include "context_limits.h"
#include "core/check.h"
#include "core/clock.h"
#include "core/files.h"
#include "core/format.h"
#include "generate/sampling.h"
#include "model/position.h"
#include "places.h"
#include "stop_signals.h"
#include "text/documents.h"
#include "text/lines.h"
#include "text/text_encoding.h"

namespace alibi::cli {
namespace {

struct GenerateCommand : CommonOptions {
  std::string model;
  std::string prompt, prompt_file;
  int64_t top_k = 0;
  int64_t samples = 1;
  ModelUse use;
  ContextOptions context;
  GenerateOptions generate;
};

/// The prompt: the option's text, standard input or a file.
std::string read_prompt(const GenerateCommand& options) {
  const std::string file = options.prompt == "-" ? "-" : options.prompt_file;
  if (file.empty()) return options.prompt;
  add_input(file, "--prompt-file");
  check_usage(file == "-" || !core::is_folder(file), "[generate] --prompt-file {} is a folder, expected a file", file);
  return text::with_line_feeds(text::read_documents({file}).front().text());
}

/// The bytes of a text that are not UTF-8, and their positions. They are incomplete characters, or bytes that a
/// byte-level model combined into an invalid character.
nlohmann::ordered_json not_utf8(const std::string& text) {
  auto bytes = nlohmann::ordered_json::array();
  for (const size_t at : text::malformed_bytes(text)) {
    bytes.push_back({{"at", at}, {"byte", static_cast<unsigned char>(text[at])}});
  }
  return bytes;
}

const char* name_of(GenerationEnd end) {
  // The callback of this command stops at a signal only.
  constexpr const char* names[] = {"tokens", "end_of_text", "stop", "interrupted"};
  return names[static_cast<size_t>(end)];
}

nlohmann::ordered_json sample_json(const Generation& sample) {
  return {{"text", text::well_formed(sample.text)},
          {"not_utf8", not_utf8(sample.text)},
          {"tokens", sample.tokens},
          {"ended", name_of(sample.end)},
          {"seconds", sample.seconds},
          {"tokens_per_second", sample.tokens_per_second()}};
}

/// The samples as elements of a JSON array in a temporary file, because all texts together may be larger than memory.
class SampleList {
 public:
  SampleList() : file_(std::tmpfile(), &std::fclose) {
    check(file_ != nullptr, "[generate] cannot create a temporary file for the samples: {}", std::strerror(errno));
  }

  void add(const nlohmann::ordered_json& sample) {
    const std::string text = sample.dump();
    fmt::print(file_.get(), "{}    {}", is_empty_ ? "\n" : ",\n", text);
    is_empty_ = false;
    check(std::ferror(file_.get()) == 0, "[generate] cannot write the temporary file of the samples");
  }

  /// Passes the elements to `append`, piece by piece.
  template <class Append>
  void read(const Append& append) {
    std::rewind(file_.get());
    std::array<char, 1 << 16> piece;
    while (const size_t size = std::fread(piece.data(), 1, piece.size(), file_.get())) append({piece.data(), size});
    check(std::ferror(file_.get()) == 0, "[generate] cannot read the temporary file of the samples");
  }

 private:
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file_;
  bool is_empty_ = true;
};

/// The result and its timing.
struct Written {
  nlohmann::ordered_json first;       // sample
  std::optional<SampleList> samples;  // absent if no JSON was requested
  int64_t tokens = 0;
  double seconds = 0;
  int64_t cache_bytes = 0;          // maximum at any time
  EvictionCertificate certificate;  // of the sample with the largest evicted share

  void add(const Generation& sample) {
    tokens += sample.tokens;
    if (certificate.keys == 0 || sample.certificate.worst > certificate.worst) certificate = sample.certificate;
    if (!first.is_null() && !samples) return;
    nlohmann::ordered_json json = sample_json(sample);
    if (samples) samples->add(json);
    if (first.is_null()) first = std::move(json);
  }
};

void show(std::string_view text) {
  say_text(text::well_formed(text));
  flush_output();
  check_output();  // stop if output fails, because the text is the only result
}

void begin_sample(const GenerateCommand& options, int64_t sample) {
  if (options.samples > 1) say("--- {} of {}\n", sample + 1, options.samples);
  show(options.prompt);
}

/// Generates samples [first, first + count) together. The first one is shown while it grows, the others when they are
/// finished.
void write_together(const GenerateCommand& options, const Prompt& prompt, int64_t first, int64_t count,
                    Written& written) {
  std::vector<Prompt> forks;
  std::vector<GenerateOptions> each(static_cast<size_t>(count), options.generate);
  std::vector<std::string> texts(static_cast<size_t>(count));
  for (size_t i = 0; i < each.size(); ++i) {
    forks.push_back(prompt.fork());
    each[i].on_text = [&text = texts[i], shown = i == 0](std::string_view more) {
      shown ? show(more) : void(text += more);
      return true;
    };
  }
  begin_sample(options, first);
  int64_t bytes = prompt.bytes();
  for (const Generation& sample : Prompt::generate_batch(std::move(forks), each, first)) {
    bytes += sample.cache_bytes - sample.shared_bytes;
    written.add(sample);
  }
  written.cache_bytes = std::max(written.cache_bytes, bytes);
  say_text("\n");
  for (int64_t i = 1; i < count; ++i) {
    begin_sample(options, first + i);
    show(texts[static_cast<size_t>(i)]);
    say_text("\n");
  }
}

/// Generates texts after a prompt until a signal arrives.
Written write_samples(const GenerateCommand& options, Prompt prompt) {
  /// This number of rows is as fast as a few rows and gives the same bits as one row, so a sample does not depend on
  /// the number of samples.
  constexpr int64_t many = 8;
  const int64_t max_together =
      options.context.memory ? 1 : many;  // the memory limit applies to all texts of a pass together
  Written written;
  if (options.samples > 1 && !options.json.empty()) written.samples.emplace();
  const auto start = core::Clock::now();
  if (options.samples == 1) {
    begin_sample(options, 0);
    GenerateOptions generate = options.generate;
    generate.on_text = [](std::string_view text) {
      show(text);
      return true;
    };
    const Generation sample = std::move(prompt).generate(generate);
    written.add(sample);
    written.cache_bytes = sample.cache_bytes;
    say_text("\n");
  } else {
    for (int64_t first = 0; first < options.samples && StopSignals::received() == 0; first += max_together) {
      write_together(options, prompt, first, std::min(max_together, options.samples - first), written);
    }
  }
  written.seconds = core::seconds_since(start);
  return written;
}

void run_generate(GenerateCommand options) {
  options.apply();
  options.prompt = read_prompt(options);
  options.generate.seed = options.seed;
  options.generate.top_k = static_cast<int>(options.top_k);
  generation::check_options(options.generate);
  check_context_limits("generate", options.context);
  options.generate.on_token = [](int32_t) { return StopSignals::received() == 0; };

  LanguageModel model = LanguageModel::load(options.model);
  options.use.apply(model);
  const auto start = core::Clock::now();
  Prompt prompt(model, options.prompt, options.context);
  const int64_t prompt_tokens = prompt.tokens();
  const double prompt_seconds = prompt.seconds();
  const StopSignals signals;  // from here on a signal must not lose the text
  Written written = write_samples(options, std::move(prompt));
  const double seconds = core::seconds_since(start);

  const double rate = static_cast<double>(written.tokens) / written.seconds;
  if (isatty(STDERR_FILENO) == 1) {
    fmt::print(stderr, "{} tokens at {} tokens/s; the prompt has {} tokens and was read in {}\n",
               core::format_integer(written.tokens), core::format_count(rate), core::format_integer(prompt_tokens),
               core::format_duration(prompt_seconds));
    fmt::print(stderr, "{}", describe_evicted(written.certificate));
  }
  nlohmann::ordered_json json = {{"model", options.model},
                                 {"prompt", text::well_formed(options.prompt)},
                                 {"prompt_tokens", prompt_tokens},
                                 {"prompt_seconds", prompt_seconds}};
  json.update(written.first.is_null() ? nlohmann::ordered_json::object() : written.first);
  json.update({{"max_tokens", options.generate.max_tokens},
               {"temperature", options.generate.temperature},
               {"top_k", options.generate.top_k},
               {"top_p", options.generate.top_p},
               {"min_p", options.generate.min_p},
               {"repetition_penalty", options.generate.repetition_penalty},
               {"presence_penalty", options.generate.presence_penalty},
               {"frequency_penalty", options.generate.frequency_penalty},
               {"stop", options.generate.stop},
               {"stop_at_end_of_text", options.generate.stop_at_end_of_text},
               {"interpolate", model::interpolation_json(model.interpolation())},
               {"precision", name_of(model.precision())},
               {"seed", options.seed},
               {"seconds", seconds},
               {"cache_bytes", written.cache_bytes},
               {"evicted", evicted_json(options.context, written.certificate)}});
  if (options.samples > 1) {
    json["all_samples"] = {{"tokens", written.tokens}, {"seconds", written.seconds}, {"tokens_per_second", rate}};
  }
  options.write_json(json, [&](const AppendText& append) {
    if (!written.samples) return;
    append(",\n  \"samples\": [");
    written.samples->read(append);
    append("\n  ]");
  });
  if (StopSignals::received() != 0) {
    flush_output();
    throw Interrupted{StopSignals::received()};
  }
}

}  // namespace

void add_generate(CLI::App& app) {
  auto options = std::make_shared<GenerateCommand>();
  GenerateOptions& generate = options->generate;
  Command command(app, "generate", "Generate text with a model; the text may be longer than the training length");
  command.model(options->model);
  command.text("--prompt", options->prompt, "TEXT",
               "Text to continue; - reads it from standard input [the start of a document]");
  command.text("--prompt-file", options->prompt_file, "FILE", "File with the text to continue; - reads standard input");
  command.reads("--prompt-file");
  command.exclude("--prompt-file", "--prompt");
  command.count("--max-tokens", generate.max_tokens, "Maximum number of tokens to generate", 0);
  command.number("--temperature", generate.temperature,
                 "Sampling temperature; lower values are less random (0 always takes the most likely token)");
  command.count("--top-k", options->top_k, "Sample from the N most likely tokens (0 samples from all tokens)", 0,
                INT32_MAX);
  command.number("--top-p", generate.top_p,
                 "Sample from the smallest set of tokens with a total probability of at least X");
  command.number("--min-p", generate.min_p,
                 "Sample from tokens that are at least X times as likely as the most likely token");
  command.number("--repetition-penalty", generate.repetition_penalty,
                 "Penalty of tokens that are already in the text; values above 1 make them less likely");
  command.number("--presence-penalty", generate.presence_penalty,
                 "Subtracted from the logits of tokens that were generated before", -2);
  command.number("--frequency-penalty", generate.frequency_penalty, "The same, for each time that they were generated",
                 -2);
  command.repeated("--stop", generate.stop, "TEXT", "Text before which generation stops; may be repeated");
  command.flag("--stop-at-end-of-text", generate.stop_at_end_of_text,
               "Stop where the model draws its end-of-text token (without it, that token is never drawn)");
  options->use.add_to(command);
  command.count("--samples", options->samples, "Number of texts to generate from the prompt");
  add_context_limits(command, options->context);
  options->add_to(command);
  command.examples(
      "  alibi generate model/ --prompt 'Call me' --max-tokens 2000\n"
      "  alibi generate model/ --prompt 'Q: why? A:' --stop Q: --samples 3\n"
      "  alibi generate model/ --prompt-file chapter.txt --json next.json\n"
      "  alibi generate model/ --prompt-file book.txt --interpolate dynamic\n"
      "  alibi generate model/ --max-tokens 1M --memory 256MiB --json certificate.json\n"
      "  alibi generate model/ --temperature 0.7 --seed 3 > text.txt");
  command.runs([options] { run_generate(*options); });
}

}  // namespace alibi::cli
