// Summaries of runs by method: means over seeds and their intervals.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "alibi/results.h"

namespace alibi::report {

/// Summarizes the runs of one method at one training length, in any order. Intervals are Student's t over the seeds.
/// With one seed they are a bootstrap over the blocks of `held_out`, which says nothing about other seeds.
MethodResults summarize(std::vector<RunResults> runs, const HeldOut& held_out);

/// Groups runs, in any order, into methods in the order of their first run. With several training lengths each length
/// is a separate method, "alibi@128".
std::vector<MethodResults> methods_of(const std::vector<RunResults>& runs, const HeldOut& held_out);

/// Sets the methods and the tasks of the results from runs on text and on tasks, in any order.
void take_runs(CompareResults& results, const std::vector<RunResults>& runs);
/// All runs of the results, on text and on tasks.
std::vector<RunResults> runs_of(const CompareResults& results);

/// The difference of two measurements in nats per token, `to` minus `from`. It is paired by seed if both have at least
/// two seeds in common. Otherwise it is paired by the blocks of text of the first common seed.
struct Difference {
  double nll = 0;
  Interval interval;  ///< 95 % interval; NaN if unknown
  size_t seeds = 0;   ///< number of paired seeds
  /// Whether the interval excludes zero.
  bool is_sure() const { return interval.low > 0 || interval.high < 0; }
};

/// Returns the difference between two evaluations, or nothing if one of them was not measured.
std::optional<Difference> difference(const HeldOut& held_out, const MethodResults& from, int64_t from_length,
                                     const MethodResults& to, int64_t to_length);

/// The lowest perplexity at a length among the methods that have learned, and the difference of each other method, in
/// the order of `results.methods`. The best method itself and methods without a measurement have no difference.
struct AgainstBest {
  const MethodResults* best = nullptr;  ///< null if no method was measured at this length
  std::vector<std::optional<Difference>> others;
};
AgainstBest against_best(const CompareResults& results, int64_t length);

/// How much of the gain from longer windows is due to the early token curse. With non-overlapping windows, longer
/// windows have fewer targets near their beginning. Compares the gain from `from` to `to` tokens with that of targets
/// whose context always has the full length (a sliding window, or ContextPoint). The share is 1 - gain with full
/// context / gain.
struct EarlyTokenCurse {
  int64_t from = 0, to = 0;
  double gain = 0;       ///< nats per token, with non-overlapping windows
  Interval interval;     ///< interval of the gain
  double with_text = 0;  ///< gain of targets with full context
  double share = 0;      ///< share of the gain that is due to the curse; above 1 if full context increases the loss
};
/// The curse between the training length and the longest length. Returns nothing if a part was not measured, if the
/// gain is below 0.02 nats, or if its interval contains zero.
std::optional<EarlyTokenCurse> early_token_curse(const HeldOut& held_out, const MethodResults& method);
/// One sentence for each method whose curse is known.
std::vector<std::string> early_token_notes(const CompareResults& results);

}  // namespace alibi::report
