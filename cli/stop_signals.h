// Lets work finish in an orderly way after SIGINT or SIGTERM, or the signals that job schedulers send.
#pragma once

#include <string_view>

namespace alibi::cli {

/// During its lifetime, the first of these signals is only recorded. The second one has its default effect.
class StopSignals {
 public:
  /// `message` is printed to standard error when a signal arrives, unless it is empty. `of_schedulers`: SIGUSR1 and
  /// SIGUSR2 too.
  explicit StopSignals(std::string_view message = {}, bool of_schedulers = false);
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  /// The number of the signal that arrived, or 0.
  static int received();
};

/// The exit code of a training that a job scheduler has stopped: the same command line continues (EX_TEMPFAIL of
/// sysexits.h).
inline constexpr int kGoOn = 75;

/// Thrown when a signal ended the work in an orderly way. The exit code is 128 + signal, as in shells, unless
/// another one is given.
struct Interrupted {
  int signal;
  int code = 128 + signal;
};

}  // namespace alibi::cli
