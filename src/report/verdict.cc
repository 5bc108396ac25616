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
#include "report/tasks.h"

namespace alibi::report {

namespace {

/// A change counts as level if its interval lies within this share.
constexpr double kLevel = 0.03;
/// A method is called poor if its perplexity at the training length exceeds this multiple of the best one.
constexpr double kPoor = 1.5;

/// One method's perplexity from its training length to the longest length.
struct Course {
  const MethodResults* method = nullptr;
  const EvaluationPoint* base = nullptr;  ///< at the training length; null if not measured
  const EvaluationPoint* end = nullptr;   ///< at the longest length; null if not measured
  std::optional<Difference> change;       ///< change of the nll
  double deviation = 0;  ///< maximum of |perplexity / perplexity at the training length - 1| over the lengths between
  bool not_finite = false;  ///< evaluated at the longest length, but the result was not finite
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

bool is_known(const Interval& interval) { return std::isfinite(interval.low) && std::isfinite(interval.high); }

/// Describes the change of a perplexity, such as "rises from 5.824 to 14.53 (×2.49)".
std::string course_text(const Course& course) {
  const Difference& change = *course.change;
  const std::string numbers = fmt::format("from {} to {} ({})", core::format_perplexity(course.base->perplexity),
                                          core::format_perplexity(course.end->perplexity), change_text(change.nll));
  const double ratio = std::exp(change.nll);
  const char* direction = ratio > 1 ? "rises" : "falls";
  if (!is_known(change.interval))
    return fmt::format("{} {}", std::abs(ratio - 1) <= kLevel ? "goes" : direction, numbers);
  const double low = std::exp(change.interval.low), high = std::exp(change.interval.high);
  if (low >= 1 - kLevel && high <= 1 + kLevel) {
    if (course.deviation <= kLevel) return "stays level, " + numbers;
    return fmt::format("ends near its start, {}, but differs from it by up to {} at lengths between", numbers,
                       change_text(std::log1p(course.deviation)));
  }
  if (change.is_sure()) return fmt::format("{} {}", direction, numbers);
  return fmt::format("goes {}, but the interval of this change, {} to {}, does not show whether it rises or falls",
                     numbers, change_text(change.interval.low), change_text(change.interval.high));
}

/// The methods that have learned and have a result at this length, lowest perplexity first.
std::vector<const MethodResults*> ranking(const CompareResults& results, int64_t length) {
  std::vector<const MethodResults*> ranked;
  for (const MethodResults& method : results.methods) {
    if (measured_at(method, length) != nullptr && !has_not_learned(results, method)) ranked.push_back(&method);
  }
  std::stable_sort(ranked.begin(), ranked.end(), [&](const MethodResults* a, const MethodResults* b) {
    return measured_at(*a, length)->perplexity < measured_at(*b, length)->perplexity;
  });
  return ranked;
}

/// "alibi has the lowest perplexity, 3.67 (3.60 to 3.74); the next, t5, has 4.02 (+9.5 %)"
std::string best_at(const CompareResults& results, int64_t length) {
  const std::vector<const MethodResults*> ranked = ranking(results, length);
  const MethodResults& best = *ranked.front();
  const auto perplexity = [&](const MethodResults& method) {
    return core::format_perplexity(measured_at(method, length)->perplexity);
  };
  if (ranked.size() < 2)
    return fmt::format("{} has perplexity {}", best.name, perplexity_text(*measured_at(best, length)));
  const std::string text =
      fmt::format("{} has the lowest perplexity, {}", best.name, perplexity_text(*measured_at(best, length)));
  std::vector<std::string> equals;
  for (size_t i = 1; i < ranked.size(); ++i) {
    const std::optional<Difference> apart = difference(results.held_out, best, length, *ranked[i], length);
    if (apart && is_known(apart->interval) && !apart->is_sure()) {
      equals.push_back(fmt::format("{} ({})", ranked[i]->name, perplexity(*ranked[i])));
    }
  }
  if (!equals.empty())
    return fmt::format("{}, but {} may be as low, because the intervals overlap", text, join_words(equals));
  const MethodResults& next = *ranked[1];
  const std::optional<Difference> apart = difference(results.held_out, best, length, next, length);
  return fmt::format("{}; the next, {}, has {}{}", text, next.name, perplexity(next),
                     apart ? fmt::format(" ({})", change_text(apart->nll)) : "");
}

/// One clause for each method that has learned.
std::string changes(const CompareResults& results, const std::vector<Course>& all, int64_t longest) {
  std::vector<std::string> parts;
  for (const Course& course : all) {
    const std::string& name = course.method->name;
    if (has_not_learned(results, *course.method)) continue;
    if (course.base == nullptr) {
      parts.push_back(fmt::format("{} has no result at {}", name, course.method->train_length));
    } else if (course.not_finite) {
      parts.push_back(fmt::format("{} gives no finite number", name));
    } else if (!course.change) {
      parts.push_back(fmt::format("{} has no result past {}", name, longest_measured(*course.method)));
    } else {
      std::string part = fmt::format("{} {}", name, course_text(course));
      // Level or falling, but from a perplexity that is worse than that of other methods.
      const EvaluationPoint& best =
          *measured_at(*ranking(results, course.method->train_length).front(), course.method->train_length);
      const bool is_poor = course.base->perplexity > kPoor * best.perplexity;
      if (is_poor && std::exp(course.change->nll) < 1 + 2 * kLevel) {
        part += fmt::format(", which is poor: the best method has {} at the training length",
                            core::format_perplexity(best.perplexity));
      }
      parts.push_back(part);
    }
  }
  return fmt::format("From the training length to {}: {}.", longest, fmt::join(parts, "; "));
}

/// Used if nothing longer than the training length was measured.
std::string only_short(const CompareResults& results) {
  if (ranking(results, results.train_length).empty()) {
    return fmt::format("No perplexity was measured at the training length, {}.", results.train_length);
  }
  return fmt::format("At the training length, {}, {}. No longer length was measured.", results.train_length,
                     best_at(results, results.train_length));
}

/// Says what the intervals refer to.
std::string basis(const CompareResults& results) {
  std::set<uint64_t> seeds;
  size_t fewest = SIZE_MAX;
  for (const MethodResults& method : results.methods) {
    seeds.insert(method.seeds.begin(), method.seeds.end());
    fewest = std::min(fewest, method.seeds.size());
  }
  const bool unfinished = fewest < seeds.size();
  if (fewest > 1) {
    return fmt::format("The numbers are means over {} seeds ({}) with 95 % intervals between seeds.{}", seeds.size(),
                       fmt::join(seeds, ", "),
                       unfinished ? " Not all runs are finished, so the means are over different seeds." : "");
  }
  if (unfinished) return "Not all runs are finished, so the means are over different seeds.";
  const std::string one = fmt::format("The numbers are from one seed ({})", fmt::join(seeds, ", "));
  if (!has_intervals(results)) return one + " and have no intervals.";
  return one + ", with 95 % intervals over blocks of the held-out text. Another seed may differ by more.";
}

/// "Trained on 198,656 of the advised 1,000,000 tokens, so ...", or "" after enough training.
std::string short_training_note(const CompareResults& results) {
  constexpr double kEnough = 0.9;  // updates are whole, so a run has slightly fewer tokens than it was given
  int64_t fewest = INT64_MAX;
  for (const MethodResults& method : results.methods) fewest = std::min(fewest, method.train_tokens);
  const double enough = kEnough * static_cast<double>(results.advised_tokens);
  if (fewest == 0 || static_cast<double>(fewest) >= enough) return "";
  return fmt::format(
      "Trained on {} of the advised {} tokens, so the order of the methods may be another after more training.",
      core::format_integer(fewest), core::format_integer(results.advised_tokens));
}

}  // namespace

Verdict verdict_of(const CompareResults& results) {
  const std::vector<std::string> of_tasks = task_sentences(results);
  if (results.methods.empty() && !of_tasks.empty()) return {of_tasks, {}};
  if (results.methods.empty()) return {{"No method was compared."}, {}};
  Verdict verdict;
  std::vector<std::string>&answer = verdict.answer, &details = verdict.details;
  const std::string not_learned = not_learned_note(results), is_short = short_training_note(results);
  if (!is_short.empty()) answer.push_back(is_short);
  int64_t longest = 0;
  bool any_learned = false;
  for (const MethodResults& method : results.methods) {
    if (has_not_learned(results, method)) continue;
    any_learned = true;
    longest = std::max(longest, longest_measured(method));
  }
  if (!any_learned) {
    answer.emplace_back("No method has learned enough to be compared.");
  } else if (longest <= results.train_length) {
    answer.push_back(only_short(results));
  } else {
    const char* among = not_learned.empty() ? "" : "of the methods that have learned, ";
    const std::string where = has_one_training_length(results)
                                  ? fmt::format("At {}, {} times the training length, ", longest,
                                                core::format_multiple(longest, results.train_length))
                                  : fmt::format("At {}, ", longest);
    answer.push_back(fmt::format("{}{}{}.", where, among, best_at(results, longest)));
    details.push_back(changes(results, courses(results, longest), longest));
    if (ranking(results, results.train_length).size() > 1) {
      details.push_back(
          fmt::format("At {}, {}{}.", results.train_length, among, best_at(results, results.train_length)));
    }
  }
  answer.insert(answer.end(), of_tasks.begin(), of_tasks.end());
  if (!not_learned.empty()) details.push_back(not_learned);
  details.insert(details.end(), results.notes.begin(), results.notes.end());
  details.push_back(basis(results));
  return verdict;
}

std::string verdict(const CompareResults& results) {
  const auto [answer, details] = verdict_of(results);
  return fmt::format("{}{}{}", fmt::join(answer, " "), details.empty() ? "" : " ", fmt::join(details, " "));
}

}  // namespace alibi::report
