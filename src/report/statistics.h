// Confidence intervals of means: Student's t over seeds, bootstrap over blocks of text.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "alibi/results.h"

namespace alibi::report {

/// A mean with its 95 % interval. With fewer than two values, deviation and interval are NaN.
struct Estimate {
  double mean = 0;
  double deviation = 0;  ///< standard deviation of a single value, with n - 1 in the denominator
  Interval interval;     ///< 95 %
};

double mean_of(std::span<const double> values);

/// Estimate from independent values, such as one for each seed: mean +- t * deviation / sqrt(n).
Estimate estimate(std::span<const double> values);

/// 95 % interval of a share of independent questions (Wilson 1927).
Interval wilson(int64_t right, int64_t questions);

/// 95 % interval of sum(values) / sum(weights) by the bootstrap over blocks of text (Efron 1979, percentile method,
/// 2000 draws with replacement). A block must be much longer than the dependence between its tokens. The draws depend
/// only on the number of blocks, so paired differences may be passed. Fewer than 8 blocks give NaN.
Interval bootstrap(std::span<const double> values, std::span<const double> weights);

}  // namespace alibi::report
