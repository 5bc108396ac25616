// Timing on a noisy machine: works to be compared alternate, so that a slow phase affects all of them, and the median
// is reported.
#pragma once

#include <functional>
#include <vector>

namespace alibi::bench {

/// Seconds on a steady clock.
double now();

/// Seconds that one run of `work` takes.
double seconds_of(const std::function<void()>& work);

struct TimingOptions {
  double seconds = 1;  ///< each piece of work runs until its runs add up to this
  int least_runs = 3;
  int most_runs = 100;
};

/// Work to be timed.
struct Work {
  std::function<void()> run;
  std::function<void()> prepare = {};  ///< called before each run, not timed; may be empty
  std::vector<double> seconds = {};    ///< one entry for each run
};

/// Runs the works alternately until each has used its time. Run each once before (warm caches, memory that is allocated
/// once). A work that already has an entry in `seconds` of at least the allowed time is not run.
void run_in_turns(std::vector<Work>& works, const TimingOptions& options);

/// Of an even number of values, the lower one of the two in the middle; 0 if there are no values.
double median(std::vector<double> values);
/// 0 if there are no values.
double least(const std::vector<double>& values);

}  // namespace alibi::bench
