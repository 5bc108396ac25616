// The model that a run starts from: of a preset, or of a folder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>

#include "alibi/export.h"
#include "alibi/language_model.h"
#include "alibi/model_options.h"
#include "alibi/training_data.h"

namespace alibi {

struct ALIBI_API ModelRecipe {
  std::string preset = "tiny";
  Position position = Position::alibi;
  ModelOptions options = {};          ///< in place of what the preset and the position method say
  std::optional<float> dropout = {};  ///< absent: the preset's; 0 turns all kinds of it off
  /// Not empty: the weights of this model folder, in its shape and with its positions and tokenizer, in place of all
  /// above but the dropout.
  std::filesystem::path from = {};
  /// Embeddings are multiplied by the preset's factor, not the method's: methods then differ in their positions alone.
  bool keep_embedding_scale = false;
  TokenizerChoice tokenizer = {};  ///< made from the text, unless that is tokens already or `from` has one

  /// Text in the tokens of this model; as training_data().
  TrainingData read_text(const std::vector<std::string>& texts, const std::vector<std::string>& valid,
                         const TextProgress& progress = {}, const std::string& field = kTextField) const;
  /// Of the model to be trained at this length, with as many tokens as the tokenizer has; absent: as the preset has.
  /// T5's largest distance is a quarter of the length unless it is given (T5 was trained at 512 and had 128), but at
  /// least the number of buckets.
  LanguageModelConfig config(int64_t train_length, std::optional<int> tokens = {}) const;
  /// The model itself. Throws Error if the tokenizer is not that of `from`.
  LanguageModel model(int64_t train_length, const std::shared_ptr<const Tokenizer>& tokenizer, uint64_t seed) const;
};

}  // namespace alibi
