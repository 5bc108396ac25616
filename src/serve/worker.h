// A thread that does one piece of work after the other.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <utility>

namespace alibi::serve {

class Worker {
 public:
  explicit Worker(size_t max_waiting) : most_(max_waiting), thread_([this] { run(); }) {}
  /// Work that waits is not done.
  ~Worker() {
    {
      const std::lock_guard lock(mutex_);
      stopped_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  /// Returns false if too much work is waiting. The work must not throw.
  bool post(std::function<void()> work) {
    {
      const std::lock_guard lock(mutex_);
      if (stopped_ || works_.size() >= most_) return false;
      works_.push_back(std::move(work));
    }
    changed_.notify_all();
    return true;
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stopped_ || !works_.empty(); });
      if (stopped_) return;
      std::function<void()> work = std::move(works_.front());
      works_.pop_front();
      lock.unlock();
      work();
      work = nullptr;  // what it holds may wait for this thread's lock
      lock.lock();
    }
  }

  const size_t most_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> works_;
  bool stopped_ = false;
  std::thread thread_;  // the last member: it uses the others
};

}  // namespace alibi::serve
