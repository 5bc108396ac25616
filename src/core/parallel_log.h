// A record of parallel sections, for measurements.
#pragma once

#include <cstdint>
#include <vector>

#include "core/parallel.h"

namespace alibi::core {

/// One call of parallel_for.
struct ParallelSection {
  CallSite site;
  double begin = 0, end = 0;    ///< seconds on the steady clock
  std::vector<double> seconds;  ///< of each task
};

/// While it lives, each parallel section that this thread begins is recorded, but not those inside of their tasks.
class ParallelLog {
 public:
  ParallelLog();
  ~ParallelLog();
  ParallelLog(const ParallelLog&) = delete;
  ParallelLog& operator=(const ParallelLog&) = delete;

  /// Of the sections that have ended, in order.
  const std::vector<ParallelSection>& sections() const { return sections_; }

  /// This thread's, or null. It is told of the sections by detail::parallel_for.
  static ParallelLog* current();
  /// Runs one: `run` is given each task's call and body in place of the section's own.
  void record(int64_t tasks, detail::TaskCall call, const void* body, const CallSite& site,
              void (*run)(int64_t tasks, detail::TaskCall call, const void* body));

 private:
  ParallelLog* outer_;
  std::vector<ParallelSection> sections_;
};

}  // namespace alibi::core
