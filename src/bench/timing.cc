#include "bench/timing.h"

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <numeric>

namespace alibi::bench {

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

double seconds_of(const std::function<void()>& work) {
  const double begin = now();
  work();
  return now() - begin;
}

void run_in_turns(std::vector<Work>& works, const TimingOptions& options) {
  const auto wants_more = [&](const Work& work) {
    const double spent = std::accumulate(work.seconds.begin(), work.seconds.end(), 0.0);
    const auto runs = static_cast<int>(work.seconds.size());
    if (!work.seconds.empty() && work.seconds.front() >= options.seconds) return false;
    return runs < options.min_runs || (spent < options.seconds && runs < options.max_runs);
  };
  for (bool more = true; more;) {
    more = false;
    for (Work& work : works) {
      if (!wants_more(work)) continue;
      if (work.prepare) work.prepare();
      work.seconds.push_back(seconds_of(work.run));
      more = true;
    }
  }
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>((values.size() - 1) / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

double least(const std::vector<double>& values) {
  return values.empty() ? 0 : *std::min_element(values.begin(), values.end());
}

}  // namespace alibi::bench
