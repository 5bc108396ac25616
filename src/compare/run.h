// One run of a comparison: trains a model and evaluates it.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>

#include "alibi/compare.h"
#include "alibi/model_recipe.h"
#include "compare/held_out.h"
#include "compare/run_store.h"
#include "compare/tasks.h"

namespace alibi::comparison {

/// Settings and data that all runs share.
struct RunSetting {
  const CompareOptions& options;  ///< all lengths and counts are final
  const TrainingData& data;       ///< what to train on
  const HeldOutPlan& held_out;
  int64_t held_out_bytes = 0;
  const RunStore& store;
  TaskSettings questions = {};
  std::span<const uint8_t> scored = {};  ///< the tokens of `data` to learn; empty: all
};

/// Receives the phase and the finished share of the run.
using RunProgress = std::function<void(CompareStatus status, double fraction_of_run)>;

/// The recipe of the models of one method.
ModelRecipe recipe_of(const CompareOptions& options, Position method);
LanguageModelConfig model_config(const CompareOptions& options, Position method, int64_t train_length,
                                 const Tokenizer* tokenizer);

/// Continues the run and saves each part as soon as it is done. Returns early, with done = false, if
/// options.should_stop returns true.
StoredRun run_to_end(const RunSetting& setting, const TrainOptions& train, StoredRun run, const RunProgress& progress);

}  // namespace alibi::comparison
