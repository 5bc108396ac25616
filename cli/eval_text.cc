#include "eval_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <memory>

#include "common.h"
#include "core/check.h"
#include "core/files.h"
#include "formats/json.h"
#include "places.h"
#include "text/corpus.h"
#include "text/data_folder.h"
#include "text/stream.h"
#include "text/text_sketch.h"
#include "train/checkpoint.h"
#include "train/identity.h"

namespace alibi::cli {
namespace {

/// What train.json says of the text of the model's training.
struct TrainingText {
  std::vector<std::string> texts, valid;
  std::string field;
};

TrainingText training_text(const std::string& model) {
  const std::filesystem::path file = training::run_folder_of(model) / "train.json";
  check(core::path_exists(file),
        "[eval] {} does not exist; `alibi train` writes this file, which names the held-out text", file.string());
  const formats::JsonObject settings = formats::read_json_object(file);
  TrainingText text{settings.get<std::vector<std::string>>("text"),
                    settings.get_or("valid", std::vector<std::string>()), settings.get_or("field", kTextField)};
  for (const std::vector<std::string>& inputs : {text.texts, text.valid}) {
    check(std::find(inputs.begin(), inputs.end(), "-") == inputs.end(),
          "[eval] {}: the text was read from standard input and cannot be read again; give TEXT", file.string());
    for (const std::string& input : inputs) add_input(input, "--held-out");
  }
  return text;
}

void check_unchanged(const EvalText& options, const TrainingText& training, std::span<const int32_t> tokens) {
  const std::optional<training::TrainedOn> known = training::read_trained_on(training::run_folder_of(options.model));
  check(!known || known->held_out_fingerprint == training::fingerprint(tokens),
        "[eval] the text has changed since the training, so the held-out part of {} is different now; restore the "
        "text, or give TEXT",
        fmt::join(training.texts, ", "));
}

/// Copied passages, such as licences, are in most texts.
constexpr double kPartToWarnOf = 0.1;

void warn_of(double part, const EvalText& options) {
  report_warning(fmt::format(
      "about {:.0f} % of this text was in the training text of {}, so the result says little about other text{}",
      100 * part, options.model, options.held_out ? "" : "; use --held-out to score the held-out text"));
}

}  // namespace

void check_texts(const EvalText& options) {
  check_usage(options.held_out == options.texts.empty(), "[eval] {}",
              options.held_out ? "TEXT and --held-out are both given, expected one of them; --held-out scores the "
                                 "text that the training held out"
                               : "TEXT is missing; give files or folders to score, -, or --held-out");
}

ScoredText text_of(const EvalText& options, const Tokenizer& tokenizer, const TextProgress& progress) {
  if (!options.held_out) return text_to_score(tokenizer, options.texts, progress, options.field);
  const TrainingText training = training_text(options.model);
  ScoredText text = held_out_text(tokenizer, training.texts, training.valid, progress, training.field);
  check_unchanged(options, training, text.stream.tokens);
  return text;
}

std::vector<text::Document> documents_of(const EvalText& options, const std::string& scoring, FilesRead& files) {
  const TrainingText of_training = options.held_out ? training_text(options.model) : TrainingText();
  const std::vector<std::string>& inputs = options.held_out ? of_training.texts : options.texts;
  for (const std::string& input : inputs) {
    check_usage(input == "-" || !text::is_data_folder(input),
                "[eval] {} has tokens, and --scoring {} needs text; give the text files, or leave out --scoring", input,
                scoring);
  }
  if (!options.held_out) return text::read_documents(inputs, std::cin, options.field, &files);
  text::Corpus corpus = text::read_corpus(inputs, of_training.valid, std::cin, of_training.field);
  files = std::move(corpus.files);
  return std::move(corpus.valid);
}

ScoredText encoded(const EvalText& options, const Tokenizer& tokenizer, const std::vector<text::Document>& documents) {
  const auto tokens = std::make_shared<std::vector<int32_t>>(text::encode_stream(tokenizer, documents));
  if (options.held_out) check_unchanged(options, training_text(options.model), *tokens);
  return {{*tokens, tokens}, text::bytes_of(documents), {}};
}

std::optional<double> part_trained_on(const EvalText& options, const ScoredText& text) {
  try {
    const std::optional<training::TrainedOn> known = training::read_trained_on(training::run_folder_of(options.model));
    const std::optional<double> part = known ? text::part_in(known->text, text.stream.tokens) : std::nullopt;
    if (part && *part >= kPartToWarnOf) warn_of(*part, options);
    return part;
  } catch (const Error& error) {
    report_warning(error.what());
    return std::nullopt;
  }
}

}  // namespace alibi::cli
