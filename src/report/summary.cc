#include "report/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>
#include <utility>

#include "core/format.h"

namespace alibi::report {

bool measured(const EvaluationPoint& point) {
  return point.gap.empty() && std::isfinite(point.nll) && std::isfinite(point.perplexity) && point.perplexity > 0;
}

const EvaluationPoint* evaluation_at(const MethodResults& method, int64_t length) {
  for (const EvaluationPoint& point : method.evaluations) {
    if (point.length == length) return &point;
  }
  return nullptr;
}

const EvaluationPoint* measured_at(const MethodResults& method, int64_t length) {
  const EvaluationPoint* point = evaluation_at(method, length);
  return point != nullptr && measured(*point) ? point : nullptr;
}

int64_t longest_measured(const MethodResults& method) {
  int64_t longest = 0;
  for (const EvaluationPoint& point : method.evaluations) {
    if (measured(point)) longest = std::max(longest, point.length);
  }
  return longest;
}

std::string token_name(const CompareResults& results) {
  if (results.tokenizer.empty()) return "tokens";
  if (results.tokenizer == "byte") return "bytes";
  return results.tokenizer == "words" ? "words" : results.tokenizer + " tokens";
}

const MethodResults* find_method(const CompareResults& results, const char* name) {
  for (const MethodResults& method : results.methods) {
    if (method.name == name) return &method;
  }
  return nullptr;
}

std::vector<int64_t> all_lengths(const CompareResults& results) {
  std::set<int64_t> lengths;
  for (const MethodResults& method : results.methods) {
    for (const EvaluationPoint& point : method.evaluations) lengths.insert(point.length);
  }
  return {lengths.begin(), lengths.end()};
}

std::string work_name(const SpeedPoint& point) {
  return fmt::format("{} at {}", point.work == "train" ? "Training" : "Evaluation", core::format_integer(point.length));
}

std::string speed_note(const CompareResults& results) {
  constexpr double kQuiet = 1.15;  // what turns on a machine of one's own differ by
  double spread = 0;
  for (const MethodSpeed& speed : results.speed) {
    for (const SpeedPoint& point : speed.points) spread = std::fmax(spread, point.spread);
  }
  if (spread <= kQuiet) return "";
  return fmt::format(
      "The machine was disturbed while speed was measured: turns of the same work took up to {} times as long. "
      "Processor time suffers less than wall time.",
      core::format_ratio(spread));
}

std::vector<WayToRead> ways_to_read(const CompareResults& results) {
  const std::vector<int64_t> lengths = all_lengths(results);
  if (lengths.empty()) return {};
  std::vector<WayToRead> ways;
  const auto add = [&](const std::string& name, const std::function<const EvaluationPoint*(const MethodResults&)>& of) {
    WayToRead way{name, {}};
    for (const MethodResults& method : results.methods) way.points.push_back(of(method));
    const bool any = std::any_of(way.points.begin(), way.points.end(), [](const auto* point) { return point; });
    if (any) ways.push_back(std::move(way));
  };
  const int64_t longest = lengths.back();
  const auto last = [](std::vector<EvaluationPoint> RunResults::*points) {
    return
        [points](const MethodResults& method) { return (method.*points).empty() ? nullptr : &(method.*points).back(); };
  };
  add(fmt::format("windows of {}", results.train_length),
      [&](const MethodResults& method) { return evaluation_at(method, results.train_length); });
  if (longest != results.train_length) {
    add(fmt::format("windows of {}", longest),
        [&](const MethodResults& method) { return evaluation_at(method, longest); });
  }
  const size_t windows = ways.size();
  int64_t stride = 0;
  for (const MethodResults& method : results.methods) {
    if (!method.sliding.empty()) stride = method.sliding.back().stride;
  }
  add(fmt::format("{}, sliding by {}", longest, stride), last(&RunResults::sliding));
  add(fmt::format("{}, flatter slopes", longest), last(&RunResults::interpolated));
  add("in one pass", last(&RunResults::streaming));
  if (ways.size() == windows) ways.clear();
  return ways;
}

}  // namespace alibi::report
