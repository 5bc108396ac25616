// From runs to methods: means over seeds, and how sure they are.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "alibi/results.h"

namespace alibi::report {

/// Runs of one method at one training length, in any order, as one. Intervals are Student's t over the seeds; of one
/// seed, a bootstrap over the blocks of `held_out`, which says nothing of other seeds.
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
  /// Whether the interval keeps away from no difference at all.
  bool is_sure() const { return interval.low > 0 || interval.high < 0; }
};

/// A method's evaluation at a length. Nothing where one of the two was not measured.
std::optional<Difference> difference(const HeldOut& held_out, const MethodResults& from, int64_t from_length,
                                     const MethodResults& to, int64_t to_length);

/// The lowest perplexity at a length, and how far each method lies above it, in the order of `results.methods`; of the
/// best itself, and of those not measured, nothing.
struct AgainstBest {
  const MethodResults* best = nullptr;  ///< null: nothing was measured there
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
  double with_text = 0;  ///< of targets with all their text
  double share = 0;      ///< of the gain, that is the curse; above 1: with their text they lose
};
/// From the training length to the longest. Nothing where a part was not measured, where nothing was gained, or where
/// the interval of the gain holds zero.
std::optional<EarlyTokenCurse> early_token_curse(const HeldOut& held_out, const MethodResults& method);

}  // namespace alibi::report
