// The ranks that mpirun, or srun with PMI, has started. Each is a process.
#pragma once

#include <memory>

#include "ranks/group.h"

namespace alibi::ranks {

/// Number of ranks that were started together, by the environment that mpirun and srun give; 1 if the process runs
/// alone. Throws UsageError if srun started several tasks without PMI, so that they cannot find each other.
int launched_ranks();

/// The number of this process among them, or 0.
int launched_rank();

/// Cores that a job scheduler gives to each task (SLURM_CPUS_PER_TASK), or 0 if it does not say.
int cores_per_task();

/// A watchdog thread exchanges heartbeats with the other ranks. If a rank is silent for too long, it ends the job.
class World : public Group {
 public:
  /// Number of ranks on this host.
  virtual int ranks_on_host() const = 0;
  /// Waits for all ranks and leaves MPI.
  virtual void finish() = 0;
  /// Ends all ranks, and this process with the exit code.
  [[noreturn]] virtual void abort(int code) = 0;
};

/// Joins the other ranks. Null if the process runs alone. Call it once. Throws UsageError if there are other ranks and
/// the build has no MPI, or if its MPI is not the one of mpirun.
std::unique_ptr<World> join();

}  // namespace alibi::ranks
