// Parts of a softmax with a temperature, for sampling.
#pragma once

#include <span>

namespace alibi::nn {

/// weights[i] = exp((logits[i] - highest) / temperature), each with an error of a few units in the last place.
/// temperature is above 0, and no logit is above `highest`. Both spans have the same size.
void softmax_numerators(std::span<const float> logits, double highest, double temperature, std::span<double> weights);

/// The largest of some logits, none of which is NaN; -infinity if there are none.
float largest(std::span<const float> logits);

}  // namespace alibi::nn
