// SIGINT and SIGTERM while something runs that should come to an end first.
#pragma once

#include <string_view>

namespace alibi::cli {

/// While it lives, the first of these signals is only noted; the second one ends the process as if nobody listened.
class StopSignals {
 public:
  /// `message` is printed to standard error when a signal arrives, unless it is empty.
  explicit StopSignals(std::string_view message = {});
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// The signal that came, or 0.
  static int received();
};

/// Thrown when the work was ended by a signal, in good order; the exit code is 128 + signal, as shells have it.
struct Interrupted {
  int signal;
};

}  // namespace alibi::cli
