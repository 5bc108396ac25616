// The settings of `alibi train`: from the command line, from a file, and written into the model folder.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "alibi/model_recipe.h"
#include "alibi/train.h"
#include "common.h"
#include "text/documents.h"

namespace alibi::cli {

/// Absent and empty: what the preset says.
struct TrainSettings : CommonOptions {
  std::vector<std::string> texts, valid;
  std::string field = kTextField;
  std::string model, from, resume, config;
  std::string position = "alibi";
  std::string preset = "tiny";
  TokenizerChoice tokenizer;
  std::optional<double> epochs, dropout;
  bool plan = false, overwrite = false;
  GivenOptions<LanguageModelConfig> shape;
  GivenOptions<TrainOptions> train;
  GivenOptions<TrainRun> run;
};

void add_train_options(Command& command, TrainSettings& settings);

/// What goes to the library. With --epochs the number of tokens to train on holds only once that of the text is given.
TrainOptions train_options(const TrainSettings& settings, std::optional<int64_t> text_tokens = {});
ModelRecipe recipe_of(const TrainSettings& settings);

/// All settings in force, by the names of their options, for train.json; `--config` reads it.
nlohmann::ordered_json settings_json(const TrainSettings& settings, const TrainOptions& options, const TrainRun& run,
                                     const LanguageModelConfig& config);

}  // namespace alibi::cli
