// The settings of `alibi train`: from the command line, from a file, and written into the model folder.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "alibi/train.h"
#include "common.h"

namespace alibi::cli {

/// Below zero and empty, and 0 for what must be positive: what the preset says.
struct TrainSettings : CommonOptions {
  std::vector<std::string> texts, valid;
  std::string model, resume, config;
  std::string position = "alibi";
  std::string preset = "tiny";
  TokenizerChoice tokenizer;
  int64_t length = 0, tokens = 0, batch_tokens = 0, micro_batch_tokens = 0;
  double epochs = 0, dropout = -1;
  std::string precision = "auto";
  bool recompute = false;
  bool plan = false;
  std::string optimizer;
  LearningRateChoice rate;
  double final_fraction = -1, warmup_from = -1, floor = -1;
  int64_t period = -1;
  double weight_decay = -1, beta1 = -1, beta2 = -1, eps = 0, momentum = -1, clip = -1;
  int64_t eval_steps = 0, eval_tokens = 0, patience = 0;
  int64_t checkpoint_steps = 0, keep = 2, log_steps = 1;
  double checkpoint_minutes = 10;
};

void add_train_options(Command& command, TrainSettings& settings);

/// What goes to the library, the preset's choices filled in. With --epochs the number of tokens to train on holds only
/// once that of the text is given.
TrainOptions train_options(const TrainSettings& settings, std::optional<int64_t> text_tokens = {});
LanguageModelConfig model_config(const TrainSettings& settings, int64_t train_length);

/// All settings in force, by the names of their options, for train.json; `--config` reads it.
nlohmann::ordered_json settings_json(const TrainSettings& settings, const TrainOptions& options,
                                     const LanguageModelConfig& config);

}  // namespace alibi::cli
