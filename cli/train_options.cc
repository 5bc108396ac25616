#include "train_options.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "model/config_fields.h"
#include "numbers.h"

namespace alibi::cli {
namespace {

template <class Options>
void add_settings(nlohmann::ordered_json& json, const Options& options) {
  for (const formats::Option<Options>& option : formats::options_of<Options>) {
    if (training::is_used(option, options))
      json[training::option_key(option.name)] = formats::json_of(option.get(options));
  }
}

}  // namespace

void add_train_options(Command& command, TrainSettings& s) {
  command.texts(s.texts, false,
                "Text files, folders of text files, a folder written by `alibi tokenize`, or - for standard input");
  command.text("-o,--out", s.model, "MODEL", "Output model folder");
  command.optional_text("--resume", s.resume, "MODEL",
                        "Continue the run in this folder, or in --out if none is named, from its newest checkpoint");
  command.flag("--overwrite", s.overwrite, "Replace the model or the run in the output folder");
  command.text("--from", s.from, "MODEL",
               "Fine-tune this model: start from its weights, with its shape and its tokenizer");
  command.text("--config", s.config, "FILE",
               "JSON file with options, such as MODEL/train.json; the command line overrides it");
  command.names_models("--from", s.from);
  command.reads("--config");
  command.flag("--plan", s.plan, "Print parameters, memory, FLOPs per token and estimated time, without training");
  command.count("--ranks", s.ranks, "With --plan: number of ranks, each on a host like this one", 1, 4096);
  command.value("--link", "RATE[,DELAY]", "With --plan: network between the ranks, such as 1Gbit,1ms [10Gbit]",
                [&s](const std::string& word) { return read_link(word, s.link.bytes_per_second, s.link.delay); });
  command.number("--update-seconds", s.update_seconds,
                 "With --plan: seconds of an update in one process, instead of measuring a layer here", {.above = 0});
  command.group(training::OptionGroup::text);
  add_valid(command, s.valid);
  add_field(command, s.field);
  command.text("--position", s.position, "NAME",
               fmt::format("Position method: {}, or several joined by +", fmt::join(position_names(), ", ")),
               position_names());
  add_preset(command, s.preset);
  add_tokenizer(command, s.tokenizer);
  add_dropout(command, s.dropout);
  s.train.add_to(command, training::OptionGroup::text);
  command.number("--epochs", s.epochs, "Number of passes over the training text, instead of --train-tokens",
                 {.above = 0});
  command.exclude("--epochs", "--train-tokens");
  command.group("Model and position");
  s.shape.add_to(command, "Model and position");
  command.group(training::OptionGroup::optimizer);
  s.train.add_to(command, training::OptionGroup::optimizer);
  command.group(training::OptionGroup::progress);
  s.train.add_to(command, training::OptionGroup::progress);
  s.run.add_to(command, training::OptionGroup::progress);
  for (const char* name : {"--ranks", "--link", "--update-seconds", "--min-count"}) command.rare(name);
  s.add_to(command);
}

TrainOptions train_options(const TrainSettings& s, std::optional<int64_t> text_tokens) {
  std::optional<int64_t> tokens;
  if (s.epochs) {
    const double all = std::ceil(*s.epochs * static_cast<double>(text_tokens.value_or(1)));
    check_usage(all < 1e15, "[train] the number of epochs is {}, which is too large", *s.epochs);
    tokens = text_tokens ? static_cast<int64_t>(all) : INT64_MAX;
  }
  const TrainOptions options = train_options(s.preset, s.train, s.seed, tokens, s.resumed);
  options.validate();
  return options;
}

ModelRecipe recipe_of(const TrainSettings& s) {
  ModelRecipe recipe{
      .preset = s.preset, .position = position_from(s.position), .from = s.from, .tokenizer = s.tokenizer};
  for (const auto& [name, value] : s.shape.values()) recipe.options.set(name, value);
  if (s.dropout) recipe.dropout = static_cast<float>(*s.dropout);
  return recipe;
}

nlohmann::ordered_json settings_json(const TrainSettings& s, const TrainOptions& options, const TrainRun& run,
                                     const LanguageModelConfig& config) {
  nlohmann::ordered_json json = {
      {"text", absolute_paths(s.texts)},
      {"valid", absolute_paths(s.valid)},
      {"out", absolute_path(s.model)},
      {"position", s.position},
      {"preset", s.preset},
      {"tokenizer", s.tokenizer.kind},
      {"vocab-size", s.tokenizer.vocab_size},
      {"min-count", s.tokenizer.min_count},
      {"dropout", config.transformer.block.dropout},
  };
  // Settings that were not given are omitted if 0 is not a valid value of the option.
  if (s.tokenizer.vocab_size == 0) json.erase("vocab-size");
  if (s.field != kTextField) json["field"] = s.field;
  if (!s.from.empty()) {  // the model determines the rest
    for (const char* key : {"position", "tokenizer", "vocab-size", "min-count"}) json.erase(key);
    json["from"] = absolute_path(s.from);
  } else if (!s.tokenizer.like.empty())
    json["like"] = absolute_path(s.tokenizer.like);
  for (const model::ConfigField& field : formats::options_of<LanguageModelConfig>) {
    if (s.shape.has(field.name))
      json[training::option_key(field.name)] = formats::json_of(s.shape.values().at(field.name));
  }
  add_settings(json, options);
  add_settings(json, run);
  return json;
}

}  // namespace alibi::cli
