// Evaluation over the ranks of a group.
#pragma once

#include <cstdint>
#include <span>

#include "alibi/evaluate.h"
#include "ranks/group.h"

namespace alibi::evaluation {

/// evaluate(). All ranks of the group call it with the same arguments, and all have the result of one process, to the
/// bit. `group` may be null.
Evaluation evaluate_over(ranks::Group* group, const LanguageModel& model, std::span<const int32_t> tokens,
                         const EvaluateOptions& options);

}  // namespace alibi::evaluation
