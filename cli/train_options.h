// The settings of `alibi train`: read from the command line or a file, and written to the model folder.
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
#include "train/rank_plan.h"

namespace alibi::cli {

/// Absent or empty values are taken from the preset.
struct TrainSettings : CommonOptions {
  std::vector<std::string> texts, valid;
  std::string field = kTextField;
  std::string model, from, resume, config;
  std::string position = "alibi";
  std::string preset = "tiny";
  TokenizerChoice tokenizer;
  std::optional<double> epochs, dropout;
  bool plan = false, overwrite = false;
  int64_t ranks = 1;                                ///< of --plan
  training::Link link{.bytes_per_second = 1.25e9};  ///< of --plan
  std::optional<double> update_seconds;             ///< of --plan; absent: measured
  GivenOptions<LanguageModelConfig> shape;
  GivenOptions<TrainOptions> train;
  GivenOptions<TrainRun> run;
  std::optional<Precision> resumed;  ///< the precision of the run that continues
};

void add_train_options(Command& command, TrainSettings& settings);

/// The options for the library. With --epochs, the number of training tokens is correct only if the number of tokens of
/// the text is given.
TrainOptions train_options(const TrainSettings& settings, std::optional<int64_t> text_tokens = {});
ModelRecipe recipe_of(const TrainSettings& settings);

/// All effective settings by option name, for train.json, which `--config` reads.
nlohmann::ordered_json settings_json(const TrainSettings& settings, const TrainOptions& options, const TrainRun& run,
                                     const LanguageModelConfig& config);

}  // namespace alibi::cli
