// Pieces of texts, from a thread of the library to Python's iterators.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <optional>
#include <utility>

#include "lock.h"

namespace alibi::python {

template <class Piece>
class Pieces {
 public:
  void put(Piece piece) {
    const std::lock_guard lock(mutex_);
    waiting_.push_back(std::move(piece));
    changed_.notify_all();
  }
  /// `failure` may be null.
  void end(std::exception_ptr failure) {
    const std::lock_guard lock(mutex_);
    failure_ = std::move(failure);
    ended_ = true;
    changed_.notify_all();
  }

  /// Waits for the next piece. Returns nothing after the last one; throws the failure if there is one, and what Python
  /// raises for a signal.
  std::optional<Piece> next() {
    while (true) {
      {
        const WithoutLock others_run;
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, std::chrono::milliseconds(50), [this] { return !waiting_.empty() || ended_; });
      }
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      const std::lock_guard lock(mutex_);
      if (!waiting_.empty()) {
        std::optional<Piece> piece(std::move(waiting_.front()));
        waiting_.pop_front();
        return piece;
      }
      if (!ended_) continue;
      if (failure_) std::rethrow_exception(failure_);
      return std::nullopt;
    }
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Piece> waiting_;
  std::exception_ptr failure_;
  bool ended_ = false;
};

}  // namespace alibi::python
