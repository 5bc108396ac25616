#include "core/parallel.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <exception>
#include <limits>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "alibi/runtime.h"
#include "core/check.h"
#include "core/interrupt.h"
#include "core/memory.h"
#include "core/processor.h"
#include "core/system.h"

namespace alibi {
namespace {

/// True in a thread that is executing tasks. A nested call then runs in the same thread.
thread_local bool inside = false;

/// When a thread allocates for the first time, glibc maps this much address space and keeps half of it. If that fails,
/// glibc tries again at each allocation of the thread, which briefly takes memory that require_memory() may have
/// counted for another thread. So every worker allocates once before it starts to work.
void set_arena_aside() {
  void* volatile first = std::malloc(1);  // volatile: otherwise the compiler removes both calls
  std::free(first);
}

/// Runs one loop at a time. The calling thread works too, so a pool of n threads has n - 1 workers. A pool is never
/// destroyed, because other threads may still compute while main() returns and static objects are destroyed.
class Pool {
 public:
  /// Waits for a running loop to end.
  void shrink(int count) {
    const std::lock_guard one_loop(loop_mutex_);
    if (size() > count) resize(count);
  }

  /// Runs tasks from `first` on, and sets `first` to the number of tasks that have run: all of them, or those until it
  /// is time to check for an interrupt. Returns false without running anything if another thread's loop is running.
  bool try_run(int64_t& first, int64_t tasks, core::detail::TaskCall call, const void* body) {
    const std::unique_lock one_loop(loop_mutex_, std::try_to_lock);
    if (!one_loop.owns_lock()) return false;
    if (size() != threads()) resize(threads());
    first = run(first, tasks, call, body);
    return true;
  }

  /// No loop runs between stop_loops() and the call that ends it.
  void stop_loops() { loop_mutex_.lock(); }
  void allow_loops() { loop_mutex_.unlock(); }

 private:
  int size() const { return static_cast<int>(workers_.size()) + 1; }

  void resize(int count) {
    {
      const std::lock_guard lock(mutex_);
      stop_.store(true);
    }
    wake_.notify_all();
    for (std::thread& worker : workers_) worker.join();
    workers_.clear();
    stop_.store(false);
    started_ = 0;
    workers_.reserve(static_cast<size_t>(count));
    for (int i = 1; i < count; ++i) {
      const auto refused = [&](const std::string& why) {
        fail("[threads] the system refused to create thread {} of {} ({}); use fewer threads", i + 1, count, why);
      };
      if (!core::has_memory(core::system::bytes_of_arena)) refused("no memory for its allocations");
      try {
        workers_.emplace_back([this, seen = loop_.load()] { work(seen); });
      } catch (const std::system_error& error) {
        refused(error.code().message());
      }
      std::unique_lock lock(mutex_);
      done_.wait(lock, [this] { return started_ == workers_.size(); });
    }
  }

  int64_t run(int64_t first, int64_t tasks, core::detail::TaskCall call, const void* body) {
    {
      const std::lock_guard lock(mutex_);
      tasks_ = tasks;
      call_ = call;
      body_ = body;
      failed_at_ = std::numeric_limits<int64_t>::max();
      failure_ = nullptr;
      unfinished_.store(tasks - first);
      left_.store(tasks - first);
      loop_.fetch_add(1);
    }
    wake_.notify_all();
    const int64_t not_begun = drain(core::next_interrupt_check());
    const auto all_finished = [this] { return unfinished_.load() == 0; };
    if (!soon(all_finished)) {
      std::unique_lock lock(mutex_);
      done_.wait(lock, all_finished);
    }
    if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
    return tasks - not_begun;
  }

  void work(uint64_t seen) {
    set_arena_aside();
    {
      const std::lock_guard lock(mutex_);
      ++started_;
      done_.notify_one();
    }
    for (;;) {
      if (!soon([&] { return stop_.load() || loop_.load() != seen; })) {
        std::unique_lock lock(mutex_);
        wake_.wait(lock, [&] { return stop_.load() || loop_.load() != seen; });
      }
      if (stop_.load()) return;
      seen = loop_.load();
      drain({});
    }
  }

  /// Polls a condition for a while before sleeping, because waking a thread takes tens of microseconds. The loops of
  /// small operators follow each other faster, and some threads finish their last task long before others. (The
  /// duration of a pause instruction depends on the processor.)
  template <class Condition>
  static bool soon(const Condition& condition) {
    using Clock = std::chrono::steady_clock;
    constexpr std::chrono::microseconds patience(200);
    constexpr int pauses = 16;
    const Clock::time_point end = Clock::now() + patience;
    do {
      for (int i = 0; i < pauses; ++i) {
        if (condition()) return true;
        core::processor::pause();
      }
    } while (Clock::now() < end);
    return false;
  }

  /// Runs tasks that no thread has begun. After the time `until` no thread begins another one. Returns how many tasks
  /// will not run for that reason; they are the last ones. A loop ends when its tasks have ended, so it does not wait
  /// for a worker that waits for a core. When such a worker gets one, it takes part in the loop that runs then. What
  /// describes a loop does not change while a task that was counted down from left_ is unfinished.
  int64_t drain(std::optional<std::chrono::steady_clock::time_point> until) {
    const core::NoInterrupts no_interrupts;  // the pool is in use
    int64_t finished = 0, not_begun = 0;
    inside = true;
    for (int64_t left; (left = left_.fetch_sub(1)) > 0; ++finished) {
      const int64_t task = tasks_ - left;
      try {
        call_(body_, task);
      } catch (...) {
        const std::lock_guard lock(mutex_);
        if (task < failed_at_) {
          failed_at_ = task;
          failure_ = std::current_exception();
        }
      }
      if (until && std::chrono::steady_clock::now() >= *until) {
        not_begun = std::max<int64_t>(0, left_.exchange(0));
        finished += not_begun;
      }
    }
    inside = false;
    if (finished > 0 && unfinished_.fetch_sub(finished) == finished) {
      const std::lock_guard lock(mutex_);  // prevents a missed wake-up between the other thread's check and its wait
      done_.notify_one();
    }
    return not_begun;
  }

  std::mutex loop_mutex_;
  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable done_;
  std::vector<std::thread> workers_;
  size_t started_ = 0;  // number of started workers
  std::atomic<bool> stop_{false};
  std::atomic<uint64_t> loop_{0};
  int64_t tasks_ = 0;
  void (*call_)(const void*, int64_t) = nullptr;
  const void* body_ = nullptr;
  std::atomic<int64_t> left_{0};        // tasks that no thread has begun; may be negative
  std::atomic<int64_t> unfinished_{0};  // and those that have begun
  int64_t failed_at_ = 0;
  std::exception_ptr failure_;
};

std::atomic<Pool*> current_pool{nullptr};
/// The pool of the parent process, whose threads do not exist in the child. The pointer keeps it reachable, so that
/// leak checkers do not report it.
std::atomic<Pool*> abandoned{nullptr};

/// A child made by fork() has one thread and creates a new pool. No loop runs during the fork, so the child does not
/// inherit a half-finished loop and its locks. The exception is a fork from inside a task.
void follow_forks() {
  thread_local Pool* stopped = nullptr;  // several threads may fork at the same time
  ::pthread_atfork(
      [] {
        stopped = inside ? nullptr : current_pool.load();
        if (stopped != nullptr) stopped->stop_loops();
      },
      [] {
        if (stopped != nullptr) stopped->allow_loops();
      },
      [] { abandoned.store(current_pool.exchange(nullptr)); });
}

Pool& pool() {
  static std::once_flag first_use;
  std::call_once(first_use, follow_forks);
  Pool* found = current_pool.load();
  if (found != nullptr) return *found;
  auto made = std::make_unique<Pool>();
  return current_pool.compare_exchange_strong(found, made.get()) ? *made.release() : *found;
}

std::atomic<int> wanted{0};

}  // namespace

int threads() {
  int count = wanted.load();
  if (count == 0) {
    const int all = core::system::usable_cores();
    count = wanted.compare_exchange_strong(count, all) ? all : count;
  }
  return count;
}

void set_threads(int count) {
  check_usage(count >= 1 && count <= 1024, "[threads] the number of threads is {}, expected 1 to 1024", count);
  check_usage(!inside,
              "[threads] the number of threads cannot be changed inside a parallel task; change it before or after");
  wanted.store(count);
  pool().shrink(count);
}

void core::detail::parallel_for(int64_t tasks, TaskCall call, const void* body) {
  if (tasks <= 0) return;
  bool together = tasks > 1 && !inside && threads() > 1;
  for (int64_t task = 0; task < tasks;) {
    core::check_interrupt();
    if (together) together = pool().try_run(task, tasks, call, body);
    if (!together) call(body, task++);
  }
}

}  // namespace alibi
