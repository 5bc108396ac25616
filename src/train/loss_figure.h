// The loss of one run against the tokens it has seen.
#pragma once

#include <string>

#include "train/checkpoint.h"

namespace alibi::training {

/// An SVG file. `batch_tokens`: of an update.
std::string loss_figure(const TrainState& state, int64_t batch_tokens);

}  // namespace alibi::training
