#include "report/summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "report/format.h"

namespace alibi {

bool measured(const EvaluationPoint& point) {
  return point.gap.empty() && std::isfinite(point.perplexity) && point.perplexity > 0;
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
  return fmt::format("{} at {}", point.work == "train" ? "Training" : "Evaluation", format_integer(point.length));
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
      format_ratio(spread));
}

}  // namespace alibi
