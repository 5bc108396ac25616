#include "core/parallel_log.h"

#include <chrono>
#include <utility>

namespace alibi::core {
namespace {

thread_local ParallelLog* current_log = nullptr;

double steady_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The tasks of a section, each with the place for its time. Threads write to places of their own, and the section's
/// end comes after all of them.
struct TimedTasks {
  detail::TaskCall call;
  const void* body;
  double* seconds;

  static void run(const void* tasks, int64_t task) {
    const TimedTasks& timed = *static_cast<const TimedTasks*>(tasks);
    const double begin = steady_seconds();
    timed.call(timed.body, task);
    timed.seconds[task] = steady_seconds() - begin;
  }
};

/// This thread's log, which looks away until this goes.
class Unlogged {
 public:
  Unlogged() : log_(std::exchange(current_log, nullptr)) {}
  ~Unlogged() { current_log = log_; }
  Unlogged(const Unlogged&) = delete;
  Unlogged& operator=(const Unlogged&) = delete;

 private:
  ParallelLog* log_;
};

}  // namespace

ParallelLog::ParallelLog() : outer_(std::exchange(current_log, this)) {}
ParallelLog::~ParallelLog() { current_log = outer_; }
ParallelLog* ParallelLog::current() { return current_log; }

void ParallelLog::record(int64_t tasks, detail::TaskCall call, const void* body, const CallSite& site,
                         void (*run)(int64_t, detail::TaskCall, const void*)) {
  const Unlogged tasks_are_not_logged_themselves;
  ParallelSection section{site, 0, 0, std::vector<double>(static_cast<size_t>(tasks))};
  const TimedTasks timed{call, body, section.seconds.data()};
  section.begin = steady_seconds();
  run(tasks, TimedTasks::run, &timed);
  section.end = steady_seconds();
  sections_.push_back(std::move(section));
}

}  // namespace alibi::core
