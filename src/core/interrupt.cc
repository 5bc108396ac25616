#include "core/interrupt.h"

#include <utility>

namespace alibi {
namespace {

thread_local InterruptScope* innermost = nullptr;

}  // namespace

struct core::Interrupts {
  static constexpr std::chrono::milliseconds interval{50};

  static std::optional<std::chrono::steady_clock::time_point> next(const InterruptScope* scope) {
    if (scope == nullptr || !scope->check_) return std::nullopt;
    return scope->checked_ + interval;
  }
  static void check(InterruptScope& scope) {
    const NoInterrupts within;
    scope.checked_ = std::chrono::steady_clock::now();
    scope.check_();
    scope.checked_ = std::chrono::steady_clock::now();  // the check may have taken long
  }
};

InterruptScope::InterruptScope(std::function<void()> check)
    : check_(std::move(check)), checked_(std::chrono::steady_clock::now()), outer_(std::exchange(innermost, this)) {}
InterruptScope::~InterruptScope() { innermost = outer_; }

core::NoInterrupts::NoInterrupts() : scope_(std::exchange(innermost, nullptr)) {}
core::NoInterrupts::~NoInterrupts() { innermost = scope_; }

void core::check_interrupt() {
  const auto next = next_interrupt_check();
  if (next && std::chrono::steady_clock::now() >= *next) Interrupts::check(*innermost);
}

std::optional<std::chrono::steady_clock::time_point> core::next_interrupt_check() {
  return Interrupts::next(innermost);
}

}  // namespace alibi
