// Training and evaluation speed of the methods, measured in rounds in which the methods alternate.
#pragma once

#include <optional>
#include <vector>

#include "compare/run.h"

namespace alibi::comparison {

/// Measures the speed of the first run of each method: updates and evaluation at the training length, and evaluation at
/// the longest length. Models that skip keys are measured with and without the skip rule. The result is saved in the
/// folder and reused for the same methods. Returns nothing if options.should_stop returns true.
std::optional<std::vector<MethodSpeed>> measure_speed(const RunSetting& setting, const std::vector<RunResults>& runs,
                                                      const RunProgress& progress);

}  // namespace alibi::comparison
