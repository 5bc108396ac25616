// Timing on a noisy machine. The pieces of work alternate, so that a slow phase affects all of them, and the median is
// reported.
#pragma once

#include <functional>
#include <vector>

namespace alibi::bench {

/// Seconds on a steady clock.
double now();

/// Seconds of one run of `work`.
double seconds_of(const std::function<void()>& work);

struct TimingOptions {
  double seconds = 1;  ///< each piece of work runs until its runs take this long in total
  int min_runs = 3;
  int max_runs = 100;
};

/// A piece of work to be timed.
struct Work {
  std::function<void()> run;
  std::function<void()> prepare = {};  ///< called before each run and not timed; may be empty
  std::vector<double> seconds = {};    ///< one entry per run
};

/// Runs the works alternately until each has used its time. Run each of them once before, to warm the caches and to
/// allocate memory. A work whose first entry in `seconds` already uses the time is not run.
void run_in_turns(std::vector<Work>& works, const TimingOptions& options);

/// The median. For an even number of values, the lower one of the two in the middle. 0 if there are no values.
double median(std::vector<double> values);
/// The minimum, or 0 if there are no values.
double least(const std::vector<double>& values);

}  // namespace alibi::bench
