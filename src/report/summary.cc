#include "report/summary.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

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

const EvaluationPoint* evaluation_at(const RunResults& run, int64_t length) {
  for (const EvaluationPoint& point : run.evaluations) {
    if (point.length == length) return &point;
  }
  return nullptr;
}

const EvaluationPoint* measured_at(const RunResults& run, int64_t length) {
  const EvaluationPoint* point = evaluation_at(run, length);
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
  constexpr double kQuiet = 1.15;  // ratio of the slowest to the fastest round on a machine without other work
  double spread = 0;
  bool one_round = false, all_keys = false;
  for (const MethodSpeed& speed : results.speed) {
    all_keys = all_keys || speed.all_keys;
    for (const SpeedPoint& point : speed.points) {
      spread = std::fmax(spread, point.spread);
      one_round = one_round || point.rounds == 1;
    }
  }
  std::vector<std::string> notes;
  if (all_keys) {
    notes.emplace_back(
        "\"All keys\" is the same model without the skip rule. The skip rule leaves out keys whose weight is "
        "provably smaller than the rounding error.");
  }
  if (one_round) {
    notes.emplace_back(
        "Speed was measured in one round only, so the effect of other work on the machine is not known.");
  } else if (spread > kQuiet) {
    notes.push_back(fmt::format(
        "Other work on the machine disturbed the speed measurement: the slowest round took {} times as long as the "
        "fastest. Processor time is less affected than wall time.",
        core::format_ratio(spread)));
  }
  return fmt::format("{}", fmt::join(notes, " "));
}

bool is_near_bigram(double nll, double bigram_nll) {
  constexpr double kNear = 0.97;
  return nll > kNear * bigram_nll;
}

bool has_not_learned(const CompareResults& results, const MethodResults& method) {
  const EvaluationPoint* base = measured_at(method, method.train_length);
  return base != nullptr && is_near_bigram(base->nll, results.held_out.bigram_nll);
}

std::string not_learned_note(const CompareResults& results) {
  std::vector<std::string> methods;
  for (const MethodResults& method : results.methods) {
    if (!has_not_learned(results, method)) continue;
    const double perplexity = measured_at(method, method.train_length)->perplexity;
    methods.push_back(fmt::format("{} ({})", method.name, core::format_perplexity(perplexity)));
  }
  if (methods.empty()) return "";
  return fmt::format(
      "{} {} not learned yet: at the training length, a table of token pairs counted on the training text predicts "
      "the held-out text about as well or better (perplexity {}). Results at other lengths mean nothing until {}. "
      "Train longer, with more --train-tokens.",
      join_words(methods), methods.size() == 1 ? "has" : "have",
      core::format_perplexity(std::exp(results.held_out.bigram_nll)), methods.size() == 1 ? "it learns" : "they learn");
}

std::string change_text(double nll) {
  const double change = std::expm1(nll);
  if (std::abs(change) < 0.5) return core::format_percent(change, true) + " %";
  return "×" + core::format_ratio(1 + change);
}

std::string change_text(double nll, const Interval& interval) {
  if (!std::isfinite(interval.low)) return change_text(nll);
  return fmt::format("{} ({} to {})", change_text(nll), change_text(interval.low), change_text(interval.high));
}

bool has_intervals(const CompareResults& results) {
  return std::ranges::any_of(results.methods, [](const MethodResults& method) {
    return std::ranges::any_of(method.evaluations,
                               [](const EvaluationPoint& point) { return std::isfinite(point.interval.low); });
  });
}

std::string perplexity_text(const EvaluationPoint& point) {
  const std::string value = core::format_perplexity(point.perplexity);
  if (!std::isfinite(point.interval.low)) return value;
  return fmt::format("{} ({} to {})", value, core::format_perplexity(std::exp(point.interval.low)),
                     core::format_perplexity(std::exp(point.interval.high)));
}

Reach reach_of(const std::vector<AnswerPoint>& points, double (*value)(const AnswerPoint&)) {
  Reach reach;
  bool answers = true;  // at all distances of this length so far
  int64_t length = 0;
  for (const AnswerPoint& point : points) {
    if (point.length != length) {
      if (length > 0 && reach.length != length) break;  // no distance of the length before
      length = point.length;
      answers = true;
    }
    answers = answers && value(point) > kReliable;
    if (answers) reach = {length, std::max(reach.distance, point.distance)};
  }
  return reach;
}

std::vector<AnswerPoint> answers_at(const std::vector<RunResults>& runs, int64_t length, int64_t distance) {
  std::vector<AnswerPoint> points;
  for (const RunResults& run : runs) {
    for (const AnswerPoint& point : run.task.points) {
      if (point.length == length && point.distance == distance) points.push_back(point);
    }
  }
  return points;
}

std::string number_of_seeds(const std::vector<MethodResults>& methods) {
  size_t least = SIZE_MAX, most = 1;
  for (const MethodResults& method : methods) {
    const size_t seeds = std::max<size_t>(method.seeds.size(), 1);
    least = std::min(least, seeds);
    most = std::max(most, seeds);
  }
  return least < most ? fmt::format("{} to {}", least, most) : fmt::format("{}", most);
}

std::string training_lengths(const CompareResults& results) {
  std::set<int64_t> lengths;
  for (const MethodResults& method : results.methods) lengths.insert(method.train_length);
  if (lengths.empty()) lengths.insert(results.train_length);
  std::vector<std::string> words;
  for (const int64_t length : lengths) words.push_back(core::format_integer(length));
  return join_words(words);
}

bool has_one_training_length(const CompareResults& results) {
  return std::all_of(results.methods.begin(), results.methods.end(),
                     [&](const MethodResults& method) { return method.train_length == results.train_length; });
}

std::string join_words(const std::vector<std::string>& words) {
  std::string out;
  for (size_t i = 0; i < words.size(); ++i) {
    out += i == 0 ? "" : i + 1 == words.size() ? " and " : ", ";
    out += words[i];
  }
  return out;
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
  add(fmt::format("windows of {}, stride {}", longest, stride), last(&RunResults::sliding));
  add(fmt::format("{}, scaled positions", longest), last(&RunResults::interpolated));
  add("in one pass", last(&RunResults::streaming));
  if (ways.size() == windows) ways.clear();
  return ways;
}

}  // namespace alibi::report
