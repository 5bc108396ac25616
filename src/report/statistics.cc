#include "report/statistics.h"

#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <limits>

#include "core/check.h"
#include "core/random.h"

namespace alibi::report {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

}  // namespace

double mean_of(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

Estimate estimate(std::span<const double> values) {
  check(!values.empty(), "[statistics] there are no values; expected at least one");
  Estimate result{mean_of(values), kNan, {}};
  if (values.size() < 2) return result;
  const auto n = static_cast<double>(values.size());
  double squares = 0;
  for (const double value : values) squares += (value - result.mean) * (value - result.mean);
  result.deviation = std::sqrt(squares / (n - 1));
  const boost::math::students_t distribution(n - 1);
  const double half = boost::math::quantile(distribution, 0.975) * result.deviation / std::sqrt(n);
  result.interval = {result.mean - half, result.mean + half};
  return result;
}

Interval wilson(int64_t right, int64_t questions) {
  check(0 <= right && right <= questions && questions > 0,
        "[statistics] {} of {} questions are right, expected 0 to {}", right, questions, questions);
  constexpr double z = 1.959963984540054;  // quantile .975 of the normal distribution
  const auto n = static_cast<double>(questions);
  const double share = static_cast<double>(right) / n, scale = 1 / (1 + z * z / n);
  const double middle = scale * (share + z * z / (2 * n));
  const double half = scale * z * std::sqrt(share * (1 - share) / n + z * z / (4 * n * n));
  return {std::clamp(middle - half, 0.0, share), std::clamp(middle + half, share, 1.0)};  // rounded otherwise
}

Interval bootstrap(std::span<const double> values, std::span<const double> weights) {
  constexpr uint64_t draws = 2000;
  constexpr size_t min_blocks = 8;
  check(values.size() == weights.size(), "[statistics] {} values have {} weights; expected one weight per value",
        values.size(), weights.size());
  const uint64_t blocks = values.size();
  if (blocks < min_blocks) return {};
  std::vector<double> means(draws);
  for (uint64_t draw = 0; draw < draws; ++draw) {
    const core::Random random(0xb007, draw);
    double sum = 0, weight = 0;
    for (uint64_t i = 0; i < blocks; ++i) {
      const auto block = static_cast<size_t>(random.below(i, blocks));
      sum += values[block];
      weight += weights[block];
    }
    means[draw] = sum / weight;
  }
  std::sort(means.begin(), means.end());
  // Interpolates between neighbours: quantiles of type 7 (Hyndman & Fan 1996).
  const auto quantile = [&](double p) {
    const double at = p * static_cast<double>(draws - 1);
    const auto below = static_cast<size_t>(at);
    return means[below] +
           (at - static_cast<double>(below)) * (means[std::min(below + 1, means.size() - 1)] - means[below]);
  };
  return {quantile(0.025), quantile(0.975)};
}

}  // namespace alibi::report
