// Lets work finish in an orderly way after SIGINT or SIGTERM.
#pragma once

#include <string_view>

namespace alibi::cli {

/// During its lifetime, the first of these signals is only recorded. The second one has its default effect.
class StopSignals {
 public:
  /// `message` is printed to standard error when a signal arrives, unless it is empty.
  explicit StopSignals(std::string_view message = {});
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// The number of the signal that arrived, or 0.
  static int received();
};

/// Thrown when a signal ended the work in an orderly way. The exit code is 128 + signal, as in shells.
struct Interrupted {
  int signal;
};

}  // namespace alibi::cli
