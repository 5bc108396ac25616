// What `alibi train --plan` prints.
#pragma once

#include "alibi/train.h"
#include "train_options.h"

namespace alibi::cli {

/// Prints parameters, memory, FLOPs and the estimated time of a run, and writes them to the file of --json.
void show_plan(const TrainSettings& settings, const LanguageModelConfig& config, const TrainOptions& options);

}  // namespace alibi::cli
