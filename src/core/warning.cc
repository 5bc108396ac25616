#include "core/warning.h"

#include <mutex>
#include <utility>

#include "alibi/warning.h"

namespace alibi {
namespace {

struct WarningHandler {
  std::mutex mutex;
  std::function<void(std::string_view)> call;
};

/// Never destroyed, because models may be loaded while main() returns.
WarningHandler& warning_handler() {
  static auto& handler = *new WarningHandler;
  return handler;
}

}  // namespace

void set_warning_handler(std::function<void(std::string_view)> handler) {
  const std::lock_guard guard(warning_handler().mutex);
  warning_handler().call = std::move(handler);
}

void core::warn(std::string_view warning) {
  std::function<void(std::string_view)> call;
  {
    const std::lock_guard guard(warning_handler().mutex);
    call = warning_handler().call;
  }
  if (call) call(warning);
}

}  // namespace alibi
