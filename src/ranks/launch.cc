#include <algorithm>
#include <cstdlib>

#include "core/check.h"
#include "core/format.h"
#include "ranks/world.h"

namespace alibi::ranks {
namespace {

/// The number in an environment variable, or 0.
int number_in(const char* variable) {
  const char* text = std::getenv(variable);
  int number = 0;
  return text != nullptr && core::parse_number(text, number) ? std::max(0, number) : 0;
}

}  // namespace

int launched_ranks() {
  if (const int ranks = number_in("OMPI_COMM_WORLD_SIZE"); ranks > 0) return ranks;  // Open MPI
  if (const int ranks = number_in("PMI_SIZE"); ranks > 0) return ranks;              // MPICH, srun --mpi=pmi2
  const int tasks = number_in("SLURM_STEP_NUM_TASKS");                               // set by srun alone
  check_usage(tasks <= 1 || std::getenv("PMIX_RANK") != nullptr,
              "[ranks] srun started {} tasks without PMI, so they cannot find each other; use mpirun inside sbatch or "
              "salloc, or srun --mpi=pmix with Open MPI, or srun --mpi=pmi2 with MPICH",
              tasks);
  return std::max(1, tasks);
}

int launched_rank() {
  int rank = 0;
  for (const char* variable : {"SLURM_PROCID", "PMIX_RANK", "PMI_RANK", "OMPI_COMM_WORLD_RANK"}) {
    if (std::getenv(variable) != nullptr) rank = number_in(variable);
  }
  return rank;
}

int cores_per_task() { return number_in("SLURM_CPUS_PER_TASK"); }

}  // namespace alibi::ranks
