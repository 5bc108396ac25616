// Notices ranks whose host or link is down. MPI itself may wait for them forever.
#pragma once

#include <mpi.h>

#include <functional>
#include <thread>

namespace alibi::ranks::mpi {

/// Rank 0 exchanges heartbeats with every other rank, in a thread of its own.
class Watchdog {
 public:
  /// Calls `on_silence(rank, seconds)` in its thread when a rank was silent for `limit` seconds.
  Watchdog(double limit, std::function<void(int rank, double seconds)> on_silence);
  /// Only when no rank needs to be watched any more.
  ~Watchdog();

 private:
  void watch(const std::stop_token& stop);

  MPI_Comm channel_ = MPI_COMM_NULL;
  double limit_;
  std::function<void(int, double)> on_silence_;
  std::jthread thread_;
};

}  // namespace alibi::ranks::mpi
