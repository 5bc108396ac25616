#include "alibi/model_recipe.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "model/families/model_files.h"
#include "model/position.h"
#include "text/data_folder.h"

namespace alibi {
namespace {

LanguageModelConfig config_to_train(const std::filesystem::path& from) {
  LanguageModelConfig config = model::read_model_config(from);
  check(
      config.transformer.head.predicts,
      "[model] {}: the model is an encoder without an output projection, which cannot be trained; it gives states and "
      "vectors (alibi embed, EncoderModel)",
      from.string());
  return config;
}

}  // namespace

TrainingData ModelRecipe::read_text(const std::vector<std::string>& texts, const std::vector<std::string>& valid,
                                    const TextProgress& progress, const std::string& field) const {
  TokenizerChoice choice = tokenizer;
  const bool is_tokens = !texts.empty() && text::is_data_folder(texts.front());
  if (!from.empty()) config_to_train(from);
  if (!from.empty() && !is_tokens) choice.like = from.string();
  return training_data(texts, valid, choice, progress, field);
}

LanguageModelConfig ModelRecipe::config(int64_t train_length, std::optional<int> tokens) const {
  LanguageModelConfig config = from.empty() ? alibi::preset(preset) : config_to_train(from);
  if (from.empty()) {
    const float scale = config.transformer.embedding.scale;
    options.apply_to(config);  // applied first, because the method's defaults depend on it
    config = with_position(config, position, train_length);
    if (keep_embedding_scale) config.transformer.embedding.scale = scale;
    TransformerConfig& t = config.transformer;
    model::Positions(t).set_defaults(t, train_length);
    options.apply_to(config);  // applied again last, because given options override the method's defaults
    if (tokens) config = with_vocab_size(config, *tokens);
  }
  const std::optional<int64_t> end = model::end_of_positions(config.transformer);
  check_usage(!end || train_length <= *end, "[model] {} has {} positions, which end at {}; the training length is {}",
              from.string(), name_of(config.transformer.position), end.value_or(0), train_length);
  config.train_length = train_length;
  if (dropout) config = with_dropout(config, *dropout);
  config.validate();
  return config;
}

LanguageModel ModelRecipe::model(int64_t train_length, const std::shared_ptr<const Tokenizer>& of_text,
                                 uint64_t seed) const {
  if (from.empty()) return LanguageModel(config(train_length, of_text->vocab_size()), seed, of_text);
  LanguageModel model =
      LanguageModel::load(from, [&](LanguageModelConfig& changed) { changed = config(train_length); });
  model.to_float32();
  const Tokenizer& own = model.tokenizer();
  check(of_text->fingerprint() == own.fingerprint(),
        "[model] the text is in tokens of another tokenizer ({}, {} tokens) than that of {} ({}, {} tokens)",
        of_text->kind(), of_text->vocab_size(), from.string(), own.kind(), own.vocab_size());
  return model;
}

}  // namespace alibi
