// Progress output of `alibi train`.
#pragma once

#include <chrono>

#include "alibi/train.h"
#include "report/progress.h"

namespace alibi::cli {

/// Rewrites a line on the terminal. Without a terminal, prints a line to standard output every few seconds.
class TrainDisplay {
 public:
  /// `flops_per_token` and the machine's best rate in FLOP/s give the utilization, which is not shown if the rate is 0.
  TrainDisplay(double flops_per_token, double ceiling);

  void update(const TrainStatus& status);

 private:
  double flops_per_token_, ceiling_;
  report::Progress progress_;
  std::chrono::steady_clock::time_point last_line_ = std::chrono::steady_clock::now();
};

}  // namespace alibi::cli
