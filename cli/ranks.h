// The command as one of several ranks: mpirun starts it several times, and the processes work together.
#pragma once

#include <cstdint>
#include <string>

#include "ranks/world.h"

namespace alibi::cli {

class Command;

/// Joins the other ranks, if there are any. Commands that share their work between ranks call it before they begin.
/// Output for people then comes from rank 0 alone. Throws UsageError if the command lines of the ranks differ.
void join_ranks(const Command& command);
/// For a command that runs in one process: ends it with exit code 2 if mpirun started several. Rank 0 says why.
void refuse_ranks(const std::string& command);
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
/// The exit code of a command that a signal has stopped and that continues when it is repeated: 128 + signal, as in
/// shells, or kGoOn if it runs over ranks, where mpirun or a scheduler sends the signal.
int code_of_stopped(int signal);
/// At the end of the process. A rank that failed ends all others. Returns the exit code.
int leave_ranks(int code);

/// Number of cores for this process, or 0 for all that it may use: what a job scheduler gives to a task, or this rank's
/// share of the host if mpirun has not bound it to cores.
int cores_of_process();

}  // namespace alibi::cli
