#include "train_options.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "model/mpt_config.h"
#include "model/position.h"

namespace alibi::cli {
namespace {

template <class Options>
void add_settings(nlohmann::ordered_json& json, const Options& options) {
  for (const Option<Options>& option : options_of<Options>) {
    if (is_used(option, options)) json[option_key(option.name)] = json_of(option.get(options));
  }
}

}  // namespace

void add_train_options(Command& command, TrainSettings& s) {
  command.texts(s.texts, false,
                "Text files, folders (all text files in them), - for standard input, or a folder of `alibi tokenize`");
  command.text("-o,--out", s.model, "MODEL", "Model folder to write");
  command.optional_text("--resume", s.resume, "MODEL",
                        "Continue the run of this folder (or of --out) from its newest checkpoint");
  command.flag("--overwrite", s.overwrite, "Replace the model or the run that the folder holds");
  command.text("--from", s.from, "MODEL",
               "Begin with the weights of this model, in its shape and with its tokenizer: fine-tuning");
  command.text("--config", s.config, "FILE", "JSON with values for options that are not given, e.g. MODEL/train.json");
  command.flag("--plan", s.plan, "Print parameters, memory, FLOPs per token and the estimated time, and train nothing");
  command.group(OptionGroup::text);
  add_valid(command, s.valid);
  add_field(command, s.field);
  command.text("--position", s.position, "NAME", "alibi, sinusoidal, rotary, t5, learned or none");
  command.choices("--position", position_names());
  add_preset(command, s.preset);
  add_tokenizer(command, s.tokenizer);
  add_dropout(command, s.dropout);
  s.train.add_to(command, OptionGroup::text);
  command.number("--epochs", s.epochs, "How often to see the text, in place of --tokens", {.above = 0});
  command.exclude("--epochs", "--tokens");
  command.group("Model and position");
  s.shape.add_to(command, "Model and position");
  command.group(OptionGroup::optimizer);
  s.train.add_to(command, OptionGroup::optimizer);
  command.group(OptionGroup::progress);
  s.train.add_to(command, OptionGroup::progress);
  s.run.add_to(command, OptionGroup::progress);
  s.add_to(command);
}

TrainOptions train_options(const TrainSettings& s, std::optional<int64_t> text_tokens) {
  std::optional<int64_t> tokens;
  if (s.epochs) {
    const double all = std::ceil(*s.epochs * static_cast<double>(text_tokens.value_or(1)));
    check_usage(all < 1e15, "[train] {} epochs are too many", *s.epochs);
    tokens = text_tokens ? static_cast<int64_t>(all) : INT64_MAX;
  }
  const TrainOptions options = train_options(s.preset, s.train, s.seed, tokens);
  options.validate();
  return options;
}

LanguageModelConfig model_config(const TrainSettings& s, int64_t train_length) {
  if (!s.from.empty()) {
    LanguageModelConfig config = read_mpt_config(s.from).model;
    const std::optional<int64_t> end = end_of_positions(config.transformer);
    check_usage(!end || train_length <= *end, "[train] {} has {} positions, which end at {}; --length is {}", s.from,
                name_of(config.transformer.position), end.value_or(0), train_length);
    config.train_length = train_length;
    return s.dropout ? with_dropout(config, static_cast<float>(*s.dropout)) : config;
  }
  ModelOptions options;
  s.shape.apply_to(options);
  LanguageModelConfig config = preset(s.preset);
  const Position position = position_from(s.position);
  // Twice: options ask which method and length it is, and the method's embedding scale how wide they made it.
  config = with_position(config, position, train_length);
  config = with_position(with_options(config, options, config), position, train_length);
  if (options.embedding_scale > 0) config.embedding_scale = static_cast<float>(options.embedding_scale);
  if (s.dropout) config = with_dropout(config, static_cast<float>(*s.dropout));
  config.validate();
  return config;
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
      {"dropout", config.transformer.dropout},
  };
  // What was not asked for is left out where 0 is no value of the option.
  if (s.tokenizer.vocab_size == 0) json.erase("vocab-size");
  if (s.field != kTextField) json["field"] = s.field;
  if (!s.from.empty()) {  // which says the rest
    for (const char* key : {"position", "tokenizer", "vocab-size", "min-count"}) json.erase(key);
    json["from"] = absolute_path(s.from);
  } else if (!s.tokenizer.like.empty())
    json["like"] = absolute_path(s.tokenizer.like);
  ModelOptions shape;
  s.shape.apply_to(shape);
  for (const Option<ModelOptions>& option : options_of<ModelOptions>) {
    if (s.shape.has(option.name)) json[option_key(option.name)] = json_of(option.get(shape));
  }
  add_settings(json, options);
  add_settings(json, run);
  return json;
}

}  // namespace alibi::cli
