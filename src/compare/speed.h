// How fast the methods train and evaluate: trained models of all of them, taking turns.
#pragma once

#include <optional>
#include <vector>

#include "compare/run.h"

namespace alibi::comparison {

/// Speed of the first run of each method: updates at the training length, evaluation there and at the longest length.
/// Methods whose models skip keys are measured with the skip rule and without. A measurement is kept in the folder and
/// not made again for the same methods. Nothing if options.should_stop says so.
std::optional<std::vector<MethodSpeed>> measure_speed(const RunSetting& setting, const std::vector<RunResults>& runs,
                                                      const RunProgress& progress);

}  // namespace alibi::comparison
