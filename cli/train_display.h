// What `alibi train` shows while it runs.
#pragma once

#include <chrono>

#include "alibi/train.h"
#include "report/progress.h"

namespace alibi::cli {

/// A line on the terminal that is rewritten, or, where there is none, a line on standard output now and then.
class TrainDisplay {
 public:
  /// `flops_per_token` and the machine's best rate in FLOP/s give the utilisation; it is left out if the rate is 0.
  TrainDisplay(double flops_per_token, double ceiling);

  void update(const TrainStatus& status);

 private:
  double flops_per_token_, ceiling_;
  report::Progress progress_;
  std::chrono::steady_clock::time_point last_line_ = std::chrono::steady_clock::now();
};

}  // namespace alibi::cli
