// The float64 reference of attention, for distances that are counted and for those of given points.
#pragma once

#include <functional>
#include <vector>

#include "attention/problem.h"

namespace alibi::kernels {

/// The distance of query i and key j of a sequence.
using Distances = std::function<double(const Sequence& sequence, int64_t i, int64_t j)>;

/// attention_reference() of a call with checked arguments. With `distances` the bias is -slope times them.
void reference(const Problem& problem, const AttentionOptions& options, const Distances& distances,
               std::vector<double>& out, std::vector<double>* lse);
/// attention_backward_reference() of the same.
void backward_reference(const Problem& problem, const AttentionOptions& options, const Distances& distances,
                        AttentionReferenceGradients& gradients);

}  // namespace alibi::kernels
