// The measured change by skipping divided by the bound of docs/explanation/skip-rule.md: more than 1 is a violation.
#pragma once

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "attention/cases.h"

namespace alibi::test {

struct SkipChange {
  double weights = 0;             ///< of the skipped keys over those of the visited ones; exact, not as computed
  double out = 0, lse = 0;        ///< of the row where each is worst
  double dq = 0, dk = 0, dv = 0;  ///< of the worst row; of the sums over all keys
  double dslopes = 0;             ///< of the worst head
  double dropped = 0;             ///< shares of the weight, over all rows
  double visited = 1;             ///< share of the blocks

  double worst() const { return std::max({weights, out, lse, dq, dk, dv, dslopes}); }
  std::string name() const {
    return fmt::format(
        "weights {:.3f} out {:.3f} lse {:.3f} dq {:.3f} dk {:.3f} dv {:.3f} dslopes {:.3f} visited {:.2f}", weights,
        out, lse, dq, dk, dv, dslopes, visited);
  }
};

/// For slopes of [heads], a table or gates, no packed sequences, queries within the keys. `noise`: relative rounding of
/// results in the case's data type, which is added to the change by skipping. Leaves the skipping run's results in t.
SkipChange skip_change(const AttentionCase& c, AttentionTensors& t, float tolerance, double noise);

}  // namespace alibi::test
