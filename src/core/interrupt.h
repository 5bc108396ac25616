// Where long computations look whether they should end (alibi/interrupt.h).
#pragma once

#include <chrono>
#include <optional>

#include "alibi/interrupt.h"

namespace alibi::core {

/// Calls the check of the innermost InterruptScope of this thread if its last call was some time ago. Call it in loops
/// that may run for a second, while no lock is held. parallel_for() does so.
void check_interrupt();

/// When the next check is due; nothing if there is no scope.
std::optional<std::chrono::steady_clock::time_point> next_interrupt_check();

/// While it lives, this thread checks nothing.
class NoInterrupts {
 public:
  NoInterrupts();
  ~NoInterrupts();
  NoInterrupts(const NoInterrupts&) = delete;
  NoInterrupts& operator=(const NoInterrupts&) = delete;

 private:
  InterruptScope* scope_;
};

}  // namespace alibi::core
