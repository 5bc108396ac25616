#include "report/verdict.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "report/format.h"
#include "report/summary.h"

namespace alibi {

namespace {

/// Changes up to this count as none: a second seed would move a small model about as much.
constexpr double kLevel = 0.03;

/// How one method's perplexity moved from the training length to the longest.
struct Change {
  std::string name;
  double ratio = NAN;       ///< perplexity at the longest length / at the training length; NaN if one is missing
  double deviation = 0;     ///< largest |ratio - 1| on the way
  bool base = false;        ///< measured at the training length
  int64_t last = 0;         ///< longest length with a number
  bool not_finite = false;  ///< tried at the longest length, but the result was not a finite number
};

Change change_of(const MethodResults& method, int64_t train_length, int64_t longest) {
  Change change;
  change.name = method.name;
  change.last = longest_measured(method);
  const EvaluationPoint* base = measured_at(method, train_length);
  change.base = base != nullptr;
  const EvaluationPoint* tried = evaluation_at(method, longest);
  change.not_finite = tried != nullptr && tried->gap.empty() && !measured(*tried);
  if (base == nullptr) return change;
  for (const EvaluationPoint& point : method.evaluations) {
    if (!measured(point) || point.length < train_length || point.length > longest) continue;
    const double ratio = point.perplexity / base->perplexity;
    change.deviation = std::max(change.deviation, std::abs(ratio - 1));
    if (point.length == longest) change.ratio = ratio;
  }
  return change;
}

/// Three significant digits, or four where three would hide that two numbers differ.
std::string digits(double value, double other) {
  const auto three = [](double x) {
    return x >= 999.5 ? format_perplexity(x) : fmt::format("{:.{}f}", x, x >= 99.95 ? 0 : x >= 9.995 ? 1 : 2);
  };
  return three(value) == three(other) ? format_perplexity(value) : three(value);
}

/// "2.2-fold", "1,200-fold", or "by 12 %" for small changes.
std::string rise(double ratio) {
  if (ratio < 1.5) return fmt::format("by {:.0f} %", 100 * (ratio - 1));
  if (ratio < 9.95) return fmt::format("{:.1f}-fold", ratio);
  const double unit = std::pow(10.0, std::floor(std::log10(ratio)) - 1);  // two significant digits
  const double rounded = std::round(ratio / unit) * unit;
  return rounded < 1e9 ? format_integer(std::llround(rounded)) + "-fold" : fmt::format("{:.1e}-fold", ratio);
}

std::string join(const std::vector<std::string>& parts) {
  std::string out;
  for (size_t i = 0; i < parts.size(); ++i) {
    out += i == 0 ? "" : i + 1 == parts.size() ? " and " : ", ";
    out += parts[i];
  }
  return out;
}

/// One clause for each way in which the methods moved, joined by semicolons.
std::string clauses(const std::vector<Change>& changes, int64_t train_length, int64_t longest) {
  std::vector<std::string> rose, fell, level, ended, stopped, not_finite, unmeasured;
  double level_deviation = 0;
  for (const Change& change : changes) {
    if (!change.base) {
      unmeasured.push_back(change.name);
    } else if (change.not_finite) {
      not_finite.push_back(change.name + "'s");
    } else if (std::isnan(change.ratio)) {
      stopped.push_back(fmt::format("{} gave no result past {}", change.name, change.last));
    } else if (change.ratio > 1 + kLevel) {
      rose.push_back(fmt::format("{}'s {}{}", change.name, rose.empty() ? "rose " : "", rise(change.ratio)));
    } else if (change.ratio < 1 - kLevel) {
      fell.push_back(
          fmt::format("{}'s {}by {:.0f} %", change.name, fell.empty() ? "fell " : "", 100 * (1 - change.ratio)));
    } else if (change.deviation > kLevel) {
      ended.push_back(change.name + "'s");
    } else {
      level.push_back(change.name + "'s");
      level_deviation = std::max(level_deviation, change.deviation);
    }
  }
  const double percent = std::max(1.0, std::ceil(100 * level_deviation - 1e-9));
  std::vector<std::string> parts;
  if (!rose.empty()) parts.push_back(join(rose));
  if (!fell.empty()) parts.push_back(join(fell));
  if (!level.empty()) parts.push_back(fmt::format("{} stayed within {:.0f} %", join(level), percent));
  if (!ended.empty()) parts.push_back(fmt::format("{} ended within {:.0f} % of the start", join(ended), 100 * kLevel));
  if (!not_finite.empty()) parts.push_back(fmt::format("{} was not a finite number at {}", join(not_finite), longest));
  if (!stopped.empty()) parts.push_back(join(stopped));
  if (!unmeasured.empty()) parts.push_back(fmt::format("{} gave no result at {}", join(unmeasured), train_length));
  return fmt::format("{}", fmt::join(parts, "; "));
}

/// Nothing longer than the training length was measured: the numbers, without a comparison of lengths.
std::string only_short(const CompareResults& results) {
  std::vector<std::string> parts;
  for (const MethodResults& method : results.methods) {
    if (const auto* point = measured_at(method, results.train_length)) {
      parts.push_back(fmt::format("{} ({})", digits(point->perplexity, NAN), method.name));
    }
  }
  if (parts.empty()) return fmt::format("Trained at {}, but no perplexity was measured there.", results.train_length);
  return fmt::format("At the training length, {}, perplexity was {}; no longer length was measured.",
                     results.train_length, join(parts));
}

/// "fell from 5.75 at 128 to 5.64 at 1024 (8x)"
std::string with_numbers(double first, double last, int64_t train_length, int64_t longest) {
  const double ratio = last / first;
  const char* verb = ratio < 1 - kLevel ? "fell" : ratio > 1 + kLevel ? "rose" : "went";
  return fmt::format("{} from {} at {} to {} at {} ({}x)", verb, digits(first, last), train_length, digits(last, first),
                     longest, format_multiple(longest, train_length));
}

}  // namespace

std::string verdict(const CompareResults& results) {
  if (results.methods.empty()) return "No method was compared.";
  const int64_t train_length = results.train_length;
  // The subject is alibi, as far as it was measured; without it, all methods are described alike.
  const MethodResults* alibi = find_method(results, "alibi");
  if (alibi != nullptr && (measured_at(*alibi, train_length) == nullptr || longest_measured(*alibi) <= train_length)) {
    alibi = nullptr;
  }
  int64_t longest = 0;
  for (const MethodResults& method : results.methods) {
    const bool usable = measured_at(method, train_length) != nullptr && (alibi == nullptr || &method == alibi);
    if (usable) longest = std::max(longest, longest_measured(method));
  }
  if (longest <= train_length) return only_short(results);

  std::vector<Change> others;
  for (const MethodResults& method : results.methods) {
    if (&method != alibi) others.push_back(change_of(method, train_length, longest));
  }
  if (alibi == nullptr) {
    return fmt::format("Perplexity from the training length, {}, to {} ({}x): {}.", train_length, longest,
                       format_multiple(longest, train_length), clauses(others, train_length, longest));
  }
  const std::string subject = with_numbers(measured_at(*alibi, train_length)->perplexity,
                                           measured_at(*alibi, longest)->perplexity, train_length, longest);
  if (others.empty()) return fmt::format("Trained at {}, alibi's perplexity {}.", train_length, subject);
  // "while" sets a contrast; where nothing else moved there is none to set.
  const bool contrast = std::any_of(others.begin(), others.end(), [](const Change& change) {
    return change.base && std::abs(change.ratio - 1) > kLevel;
  });
  return fmt::format("Trained at {}, alibi's perplexity {}{} {}.", train_length, subject, contrast ? ", while" : ";",
                     clauses(others, train_length, longest));
}

}  // namespace alibi
