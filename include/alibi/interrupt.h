// Ends long computations early, for example on Ctrl-C.
#pragma once

#include <chrono>
#include <functional>

#include "alibi/export.h"

namespace alibi {
namespace core {
struct Interrupts;  // private to the library
}

/// While it lives, computations of the library on this thread call `check` about every 50 ms, between two pieces of
/// their work and without holding a lock. If `check` throws, the computation ends and its function throws the same. An
/// object that the function was changing is then as after any other exception. The innermost scope counts; an empty
/// `check` hides the outer ones. Within a call of `check` no scope counts.
class ALIBI_API InterruptScope {
 public:
  explicit InterruptScope(std::function<void()> check);
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

 private:
  friend struct core::Interrupts;
  std::function<void()> check_;
  std::chrono::steady_clock::time_point checked_;
  InterruptScope* outer_;
};

}  // namespace alibi
