// Summaries of runs by method: means over seeds, and their intervals.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "alibi/results.h"

namespace alibi::report {

/// Summarizes runs of one method at one training length, in any order. Intervals are Student's t over the seeds. For
/// one seed they are a bootstrap over the blocks of `held_out`, which says nothing about other seeds.
MethodResults summarize(std::vector<RunResults> runs, const HeldOut& held_out);

/// Runs in any order -> methods in the order of their first run. With several training lengths each is a line of its
/// own, "alibi@128".
std::vector<MethodResults> methods_of(const std::vector<RunResults>& runs, const HeldOut& held_out);

/// The difference of two measurements in nats per token, `to` minus `from`. Paired: by seed where both have two seeds
/// or more in common, else by the blocks of text of the first seed that both have.
struct Difference {
  double nll = 0;
  Interval interval;  ///< 95 %; NaN: not known
  size_t seeds = 0;   ///< that it was paired over
  /// Whether the interval excludes zero.
  bool is_sure() const { return interval.low > 0 || interval.high < 0; }
};

/// The difference between two evaluations. Nothing if one of them was not measured.
std::optional<Difference> difference(const HeldOut& held_out, const MethodResults& from, int64_t from_length,
                                     const MethodResults& to, int64_t to_length);

/// The lowest perplexity at a length among the methods that have learned, and how far each other method lies from it,
/// in the order of `results.methods`; of the best itself, and of those not measured, nothing.
struct AgainstBest {
  const MethodResults* best = nullptr;  ///< null: none was measured there
  std::vector<std::optional<Difference>> others;
};
AgainstBest against_best(const CompareResults& results, int64_t length);

/// How much of what longer windows gain is the early token curse: windows that do not overlap let fewer targets stand
/// at their beginning the longer they are. The gain from `from` to `to` tokens of non-overlapping windows, that of
/// targets which all see as much text as the window holds (a sliding window, or ContextPoint), and 1 - the one / the
/// other.
struct EarlyTokenCurse {
  int64_t from = 0, to = 0;
  double gain = 0;       ///< nats per token, of windows that do not overlap
  Interval interval;     ///< of the gain
  double with_text = 0;  ///< of targets with all their text
  double share = 0;      ///< of the gain, that is the curse; above 1: with their text they lose
};
/// From the training length to the longest. Nothing where a part was not measured, where the gain is below 0.02 nats,
/// or where its interval holds zero.
std::optional<EarlyTokenCurse> early_token_curse(const HeldOut& held_out, const MethodResults& method);
/// One sentence for each method of which it can be told.
std::vector<std::string> early_token_notes(const CompareResults& results);

}  // namespace alibi::report
