#include "report/verdict.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <set>
#include <vector>

#include "core/format.h"
#include "report/summarize.h"
#include "report/summary.h"

namespace alibi::report {

namespace {

/// Changes up to this count as none, where their interval lies within it.
constexpr double kLevel = 0.03;
/// A perplexity so many times the best one at the same length: what stays at it has not succeeded.
constexpr double kPoor = 1.5;

/// One method's perplexity from its training length to the longest length.
struct Course {
  const MethodResults* method = nullptr;
  const EvaluationPoint* base = nullptr;  ///< at the training length; null: not measured
  const EvaluationPoint* end = nullptr;   ///< at the longest length; null: not measured
  std::optional<Difference> change;       ///< of the nll
  double deviation = 0;                   ///< largest |perplexity / that at the training length - 1| on the way
  bool not_finite = false;                ///< tried at the longest length, but the result was not a finite number
};

std::vector<Course> courses(const CompareResults& results, int64_t longest) {
  std::vector<Course> all;
  for (const MethodResults& method : results.methods) {
    Course course{&method, measured_at(method, method.train_length), measured_at(method, longest), {}, 0, false};
    const EvaluationPoint* tried = evaluation_at(method, longest);
    course.not_finite = tried != nullptr && tried->gap.empty() && !measured(*tried);
    course.change = difference(results.held_out, method, method.train_length, method, longest);
    for (const EvaluationPoint& point : method.evaluations) {
      if (course.base == nullptr || !measured(point) || point.length < method.train_length) continue;
      course.deviation = std::max(course.deviation, std::abs(point.perplexity / course.base->perplexity - 1));
    }
    all.push_back(course);
  }
  return all;
}

std::string join(const std::vector<std::string>& parts) {
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) {
    out += i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ";
    out += parts[i];
  }
  return out;
}

bool is_known(const Interval& interval) { return std::isfinite(interval.low) && std::isfinite(interval.high); }

/// "3.67 (3.60 to 3.74)"
std::string with_interval(const EvaluationPoint& point) {
  const std::string value = core::format_perplexity(point.perplexity);
  if (!is_known(point.interval)) return value;
  return fmt::format("{} ({} to {})", value, core::format_perplexity(std::exp(point.interval.low)),
                     core::format_perplexity(std::exp(point.interval.high)));
}

std::string percent(double part) { return core::format_percent(std::abs(part)); }

/// "2.2-fold", "1,200-fold", or "by 12 %" for small changes; `ratio` > 1.
std::string rise(double ratio) {
  if (!std::isfinite(ratio)) return "more than 1e+308-fold";
  if (ratio < 1.5) return fmt::format("by {} %", percent(ratio - 1));
  if (ratio < 9.95) return fmt::format("{:.1f}-fold", ratio);
  const double unit = std::pow(10.0, std::floor(std::log10(ratio)) - 1);  // two significant digits
  const double rounded = std::round(ratio / unit) * unit;
  return rounded < 1e9 ? core::format_integer(std::llround(rounded)) + "-fold" : fmt::format("{:.1e}-fold", ratio);
}

/// What can be said of a change in words, such as "rose 2.2-fold".
std::string moved(const Difference& change, double deviation) {
  const double ratio = std::exp(change.nll);
  if (!is_known(change.interval)) {
    if (std::abs(ratio - 1) <= kLevel) return fmt::format("moved by {} %", core::format_percent(ratio - 1, true));
    return ratio > 1 ? "rose " + rise(ratio) : fmt::format("fell by {} %", percent(ratio - 1));
  }
  const double low = std::exp(change.interval.low), high = std::exp(change.interval.high);
  if (low > 1 + kLevel) return "rose " + rise(ratio);
  if (high < 1 - kLevel) return fmt::format("fell by {} %", percent(ratio - 1));
  if (low >= 1 - kLevel && high <= 1 + kLevel) {
    const double most = std::max(std::abs(low - 1), std::abs(high - 1));
    if (deviation > kLevel) return fmt::format("ended within {} % of the start", percent(most));
    return fmt::format("stayed within {} %", percent(std::max(most, deviation)));
  }
  if (change.is_sure()) {
    return fmt::format("{} by {} % ({} to {})", ratio > 1 ? "rose" : "fell", percent(ratio - 1),
                       percent(std::min(std::abs(low - 1), std::abs(high - 1))),
                       percent(std::max(std::abs(low - 1), std::abs(high - 1))));
  }
  return fmt::format("moved by {} to {} %, up or down not decided", core::format_percent(low - 1, true),
                     core::format_percent(high - 1, true));
}

/// Those measured at a length, the lowest perplexity first.
std::vector<const MethodResults*> ranking(const CompareResults& results, int64_t length) {
  std::vector<const MethodResults*> ranked;
  for (const MethodResults& method : results.methods) {
    if (measured_at(method, length) != nullptr) ranked.push_back(&method);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [&](const MethodResults* a, const MethodResults* b) {
    return measured_at(*a, length)->perplexity < measured_at(*b, length)->perplexity;
  });
  return ranked;
}

/// "alibi has the lowest perplexity, 3.67 (3.60 to 3.74), 72 % below the next, t5's 13.1"
std::string best_at(const CompareResults& results, int64_t length) {
  const std::vector<const MethodResults*> ranked = ranking(results, length);
  const MethodResults& best = *ranked.front();
  std::string text =
      fmt::format("{} has the lowest perplexity, {}", best.name, with_interval(*measured_at(best, length)));
  if (ranked.size() < 2)
    return fmt::format("{}'s perplexity is {}", best.name, with_interval(*measured_at(best, length)));
  std::vector<std::string> equals;
  for (size_t i = 1; i < ranked.size(); ++i) {
    const std::optional<Difference> apart = difference(results.held_out, best, length, *ranked[i], length);
    if (apart && is_known(apart->interval) && !apart->is_sure()) {
      equals.push_back(fmt::format("{}'s {}", ranked[i]->name,
                                   core::format_perplexity(measured_at(*ranked[i], length)->perplexity)));
    }
  }
  if (!equals.empty()) {
    return fmt::format("{}; {} cannot be told from it", text, join(equals));
  }
  const double next = measured_at(*ranked[1], length)->perplexity;
  if (next > kPoor * measured_at(best, length)->perplexity) {
    return fmt::format("{}; the next is {}'s {}", text, ranked[1]->name, core::format_perplexity(next));
  }
  const double below = 1 - measured_at(best, length)->perplexity / next;
  return fmt::format("{}, {} % below the next, {}'s {}", text, percent(below), ranked[1]->name,
                     core::format_perplexity(next));
}

/// One clause for each method, that of the best first.
std::string changes(const CompareResults& results, const std::vector<Course>& all, int64_t longest) {
  std::vector<std::string> parts;
  for (const Course& course : all) {
    const std::string& name = course.method->name;
    if (course.base == nullptr) {
      parts.push_back(fmt::format("{} gave no result at {}", name, course.method->train_length));
    } else if (course.not_finite) {
      parts.push_back(fmt::format("{}'s was not a finite number", name));
    } else if (!course.change) {
      parts.push_back(fmt::format("{} gave no result past {}", name, longest_measured(*course.method)));
    } else {
      std::string part = fmt::format("{}'s {}", name, moved(*course.change, course.deviation));
      // Level, or better, at a perplexity that others do not have even at the start.
      const EvaluationPoint& best =
          *measured_at(*ranking(results, course.method->train_length).front(), course.method->train_length);
      const bool is_poor = course.base->perplexity > kPoor * best.perplexity;
      if (is_poor && std::exp(course.change->nll) < 1 + 2 * kLevel) {
        part += fmt::format(", but from {}, where the best had {}", core::format_perplexity(course.base->perplexity),
                            core::format_perplexity(best.perplexity));
      }
      parts.push_back(part);
    }
  }
  return fmt::format("From the training length to {}: {}.", longest, fmt::join(parts, "; "));
}

/// Nothing longer than the training length was measured: the numbers, without a comparison of lengths.
std::string only_short(const CompareResults& results) {
  if (ranking(results, results.train_length).empty()) {
    return fmt::format("Trained at {}, but no perplexity was measured there.", results.train_length);
  }
  return fmt::format("At the training length, {}, {}; no longer length was measured.", results.train_length,
                     best_at(results, results.train_length));
}

/// What the intervals are of.
std::string basis(const CompareResults& results) {
  std::set<uint64_t> seeds;
  size_t fewest = SIZE_MAX;
  bool any_interval = false;
  for (const MethodResults& method : results.methods) {
    seeds.insert(method.seeds.begin(), method.seeds.end());
    fewest = std::min(fewest, method.seeds.size());
    for (const EvaluationPoint& point : method.evaluations) any_interval = any_interval || is_known(point.interval);
  }
  const std::string unfinished =
      fewest < seeds.size() ? " Not all runs are done: the means are of different seeds." : "";
  if (fewest > 1) {
    return fmt::format("Means of {} seeds ({}); intervals are of 95 %, between seeds.{}", seeds.size(),
                       fmt::join(seeds, ", "), unfinished);
  }
  const std::string one = fmt::format("One seed ({}): ", fmt::join(seeds, ", "));
  if (!unfinished.empty()) return unfinished.substr(1);
  if (!any_interval) return one + "how sure this is, is not known.";
  return one + "intervals are of 95 %, over blocks of the held-out text; another seed may differ by more.";
}

}  // namespace

std::string verdict(const CompareResults& results) {
  if (results.methods.empty()) return "No method was compared.";
  int64_t longest = 0;
  for (const MethodResults& method : results.methods) longest = std::max(longest, longest_measured(method));
  if (longest <= results.train_length) return fmt::format("{} {}", only_short(results), basis(results));

  std::set<int64_t> train_lengths;
  for (const MethodResults& method : results.methods) train_lengths.insert(method.train_length);
  const std::string where = train_lengths.size() > 1
                                ? fmt::format("At {}", longest)
                                : fmt::format("At {}, {} times the training length,", longest,
                                              core::format_multiple(longest, results.train_length));
  std::string text =
      fmt::format("{} {}. {}", where, best_at(results, longest), changes(results, courses(results, longest), longest));
  const std::vector<const MethodResults*> at_start = ranking(results, results.train_length);
  if (at_start.size() > 1)
    text += fmt::format(" At {}, {}.", results.train_length, best_at(results, results.train_length));
  return fmt::format("{} {}", text, basis(results));
}

}  // namespace alibi::report
