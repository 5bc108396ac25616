// The command as one of several ranks: mpirun starts it several times, and the processes work together.
#pragma once

#include <cstdint>

#include "ranks/world.h"

namespace alibi::cli {

/// Joins the other ranks, if there are any. Commands that share their work between ranks call it before they begin.
/// Output for people then comes from rank 0 alone.
void join_ranks();
/// The ranks, or null if the command runs alone or does not use ranks.
ranks::World* world();
bool is_first_rank();
/// Waits for the other ranks.
void wait_for_ranks();
/// Throws Error if the ranks compute with different instruction sets, which would give other bits at another number of
/// ranks.
void check_same_machines();
/// The value of rank 0, on all ranks: what was measured or is read from a folder may differ between ranks.
int64_t of_first_rank(int64_t value);
/// At the end of the process. A rank that failed ends all others. Returns the exit code.
int leave_ranks(int code);

/// Number of cores for this process, or 0 for all that it may use: what a job scheduler gives to a task, or this rank's
/// share of the host if mpirun has not bound it to cores.
int cores_of_process();

}  // namespace alibi::cli
