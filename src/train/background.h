// Work that another thread does in order.
#pragma once

#include <condition_variable>
#include <deque>
#include <exception>
#include <functional>
#include <mutex>
#include <thread>

namespace alibi::training {

class Background {
 public:
  Background() : thread_([this](const std::stop_token& stop) { run(stop); }) {}
  /// Waits for the running work and drops what has not begun.
  ~Background() = default;

  void add(std::function<void()> work);
  /// Waits until everything is done. Rethrows the first exception; work after it is not done.
  void wait();

 private:
  void run(const std::stop_token& stop);

  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::deque<std::function<void()>> waiting_;
  bool is_running_ = false;
  std::exception_ptr failure_;
  std::jthread thread_;  // ends before the members above are destroyed
};

}  // namespace alibi::training
