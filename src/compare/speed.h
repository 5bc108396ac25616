// How fast the methods train and evaluate, measured in rounds of all methods.
#pragma once

#include <optional>
#include <vector>

#include "compare/run.h"

namespace alibi::comparison {

/// Speed of the first run of each method: updates at the training length, evaluation there and at the longest length.
/// Methods whose models skip keys are measured with and without the skip rule. The measurement is saved in the folder
/// and not repeated for the same methods. Returns nothing if options.should_stop says so.
std::optional<std::vector<MethodSpeed>> measure_speed(const RunSetting& setting, const std::vector<RunResults>& runs,
                                                      const RunProgress& progress);

}  // namespace alibi::comparison
