#include "report/statistics.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "core/check.h"
#include "core/random.h"

namespace alibi::report {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

/// The continued fraction of the incomplete beta function, by Lentz's method; converges fast for x < (a+1) / (a+b+2).
double beta_fraction(double a, double b, double x) {
  constexpr double tiny = 1e-300;
  const auto away_from_zero = [](double value) { return std::abs(value) < tiny ? tiny : value; };
  double c = 1, d = 1 / away_from_zero(1 - (a + b) * x / (a + 1)), fraction = d;
  for (int m = 1; m < 500; ++m) {
    for (const double term : {m * (b - m) * x / ((a + 2 * m - 1) * (a + 2 * m)),
                              -(a + m) * (a + b + m) * x / ((a + 2 * m) * (a + 2 * m + 1))}) {
      d = 1 / away_from_zero(1 + term * d);
      c = away_from_zero(1 + term / c);
      fraction *= c * d;
    }
    if (std::abs(c * d - 1) < 1e-15) break;
  }
  return fraction;
}

/// I_x(a, b)
double incomplete_beta(double a, double b, double x) {
  if (x <= 0) return 0;
  if (x >= 1) return 1;
  const double front =
      std::exp(std::lgamma(a + b) - std::lgamma(a) - std::lgamma(b) + a * std::log(x) + b * std::log1p(-x));
  return x < (a + 1) / (a + b + 2) ? front * beta_fraction(a, b, x) / a : 1 - front * beta_fraction(b, a, 1 - x) / b;
}

/// P(T <= t) for t >= 0
double student_t_distribution(double t, double degrees) {
  return 1 - 0.5 * incomplete_beta(degrees / 2, 0.5, degrees / (degrees + t * t));
}

}  // namespace

double mean_of(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return sum / static_cast<double>(values.size());
}

double student_t_quantile(double p, double degrees) {
  check(p > 0 && p < 1 && degrees > 0, "[statistics] quantile {} of Student's t with {} degrees of freedom", p,
        degrees);
  if (p < 0.5) return -student_t_quantile(1 - p, degrees);
  double low = 0, high = 1;
  while (student_t_distribution(high, degrees) < p) high *= 2;
  for (int i = 0; i < 200 && high - low > 1e-14 * high; ++i) {
    const double middle = 0.5 * (low + high);
    (student_t_distribution(middle, degrees) < p ? low : high) = middle;
  }
  return 0.5 * (low + high);
}

Estimate estimate(std::span<const double> values) {
  check(!values.empty(), "[statistics] no values");
  Estimate result{mean_of(values), kNan, {}};
  if (values.size() < 2) return result;
  const auto n = static_cast<double>(values.size());
  double squares = 0;
  for (const double value : values) squares += (value - result.mean) * (value - result.mean);
  result.deviation = std::sqrt(squares / (n - 1));
  const double half = student_t_quantile(0.975, n - 1) * result.deviation / std::sqrt(n);
  result.interval = {result.mean - half, result.mean + half};
  return result;
}

Interval bootstrap(std::span<const double> values, std::span<const double> weights) {
  constexpr uint64_t draws = 2000;
  constexpr size_t least_blocks = 8;
  check(values.size() == weights.size(), "[statistics] {} values with {} weights", values.size(), weights.size());
  const uint64_t blocks = values.size();
  if (blocks < least_blocks) return {};
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
  // Between neighbours, as quantiles of type 7 are (Hyndman & Fan 1996).
  const auto quantile = [&](double p) {
    const double at = p * static_cast<double>(draws - 1);
    const auto below = static_cast<size_t>(at);
    return means[below] +
           (at - static_cast<double>(below)) * (means[std::min(below + 1, means.size() - 1)] - means[below]);
  };
  return {quantile(0.025), quantile(0.975)};
}

}  // namespace alibi::report
