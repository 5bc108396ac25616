// How sure a mean is: Student's t over seeds, the bootstrap over blocks of text.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "alibi/results.h"

namespace alibi::report {

/// Mean, and how sure it is. With fewer than two values deviation and interval are NaN.
struct Estimate {
  double mean = 0;
  double deviation = 0;  ///< standard deviation of one value, n - 1 in the denominator
  Interval interval;     ///< 95 %
};

double mean_of(std::span<const double> values);

/// Of independent values, such as one for each seed: mean +- t * deviation / sqrt(n).
Estimate estimate(std::span<const double> values);

/// 95 % of the mean of sum(values) / sum(weights) over blocks that are drawn again with replacement (Efron 1979, the
/// percentile method, 2000 draws). A block is a stretch of text much longer than what makes its tokens depend on each
/// other. The draws depend on the number of blocks alone, so differences of paired values may be given. Fewer than 8
/// blocks give NaN.
Interval bootstrap(std::span<const double> values, std::span<const double> weights);

}  // namespace alibi::report
