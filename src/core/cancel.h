// Cancellation of computations.
#pragma once

#include <atomic>

#include "alibi/error.h"

namespace alibi::core {

/// Thrown by a parallel loop whose computation was cancelled.
class Cancelled : public Error {
 public:
  Cancelled() : Error("[cancel] the computation was cancelled") {}
};

/// While it lives, parallel loops of this thread throw Cancelled between two tasks once `flag` is true. A computation
/// that leaves results only where they are dropped after an exception, such as the vectors of a text, can be stopped
/// at any place in this way.
class CancelScope {
 public:
  explicit CancelScope(const std::atomic<bool>& flag);
  ~CancelScope();
  CancelScope(const CancelScope&) = delete;
  CancelScope& operator=(const CancelScope&) = delete;

 private:
  const std::atomic<bool>* before_;
};

}  // namespace alibi::core
