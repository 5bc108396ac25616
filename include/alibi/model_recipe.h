// The model that a run starts from: a new one from a preset, or one from a folder.
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
  ModelOptions options = {};          ///< override the preset and the position method
  std::optional<float> dropout = {};  ///< absent: the preset's; 0 disables every kind of dropout
  /// If not empty, the run starts from the weights of this model folder, with its shape, positions and tokenizer. All
  /// fields above except the dropout are then ignored.
  std::filesystem::path from = {};
  /// Multiply embeddings by the preset's factor instead of the method's, so that methods differ in their positions
  /// only.
  bool keep_embedding_scale = false;
  TokenizerChoice tokenizer = {};  ///< learned from the text, unless the text is a folder of tokens or `from` has a
                                   ///< tokenizer

  /// Reads text as tokens of this model, like training_data().
  TrainingData read_text(const std::vector<std::string>& texts, const std::vector<std::string>& valid,
                         const TextProgress& progress = {}, const std::string& field = kTextField) const;
  /// Configuration of the model for this training length. `tokens` is the vocabulary size of the tokenizer; absent: the
  /// preset's. Unless it is set, T5's last bucket begins at a quarter of the length (T5 was trained at 512 and had
  /// 128), but at least at the number of buckets.
  LanguageModelConfig config(int64_t train_length, std::optional<int> tokens = {}) const;
  /// Makes or loads the model. Throws Error if the tokenizer is not that of `from`.
  LanguageModel model(int64_t train_length, const std::shared_ptr<const Tokenizer>& tokenizer, uint64_t seed) const;
};

}  // namespace alibi
