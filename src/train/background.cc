#include "train/background.h"

#include <utility>

namespace alibi::training {

void Background::add(std::function<void()> work) {
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(work));
  }
  changed_.notify_all();
}

void Background::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return waiting_.empty() && !is_running_; });
  if (failure_) std::rethrow_exception(std::exchange(failure_, nullptr));
}

void Background::run(const std::stop_token& stop) {
  std::unique_lock lock(mutex_);
  while (changed_.wait(lock, stop, [this] { return !waiting_.empty(); }) && !stop.stop_requested()) {
    const std::function<void()> work = std::move(waiting_.front());
    waiting_.pop_front();
    is_running_ = true;
    lock.unlock();
    std::exception_ptr failure;
    try {
      work();
    } catch (...) {
      failure = std::current_exception();
    }
    lock.lock();
    is_running_ = false;
    if (failure) {
      failure_ = failure;
      waiting_.clear();
    }
    changed_.notify_all();
  }
}

}  // namespace alibi::training
