#include "ranks.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>
#include <vector>

#include "alibi/runtime.h"
#include "command.h"
#include "core/check.h"
#include "core/system.h"
#include "output.h"
#include "stop_signals.h"

namespace alibi::cli {
namespace {

std::unique_ptr<ranks::World> the_world;

/// Time in which rank 0 reports an error before another rank ends.
constexpr std::chrono::seconds kMoment(2);

}  // namespace

void join_ranks(const Command& command) {
  the_world = ranks::join();
  if (the_world == nullptr) return;
  speak_as_rank(*the_world);
  ranks::NamedValues values{{"the command", command.full_name()}};
  // The hosts may have different numbers of cores, and rank 0 alone writes the file of --json.
  const nlohmann::ordered_json options = command.given_options({"threads", "json"});
  for (const auto& [option, value] : options.items()) {
    values.emplace_back(option, value.dump());
  }
  ranks::check_same(*the_world, values);
}

void refuse_ranks(const std::string& command) {
  const int ranks = ranks::launched_ranks();
  if (ranks == 1) return;
  if (ranks::launched_rank() > 0) {
    std::this_thread::sleep_for(kMoment);  // mpirun ends the other processes when one has failed
    throw Interrupted{0, 2};
  }
  fail_usage(
      "[ranks] {} ranks were started together, but `{}` runs in one process; start it without mpirun. If each rank has "
      "a command of its own, start it with `env -u OMPI_COMM_WORLD_SIZE -u PMI_SIZE -u SLURM_STEP_NUM_TASKS`",
      ranks, command);
}

ranks::World* world() { return the_world.get(); }

bool is_first_rank() { return the_world == nullptr || the_world->rank() == 0; }

void wait_for_ranks() {
  if (the_world != nullptr) ranks::barrier(*the_world);
}

void check_same_machines() {
  if (the_world == nullptr) return;
  const std::vector<double> all = ranks::all_gather(*the_world, static_cast<double>(isa()));
  for (int rank = 0; rank < the_world->size(); ++rank) {
    const auto theirs = static_cast<Isa>(all[static_cast<size_t>(rank)]), first = static_cast<Isa>(all.front());
    check(theirs == first,
          "[ranks] {} computes with {} and {} with {}, expected the same instruction set, because the bits differ; set "
          "ALIBI_ISA={} for all ranks",
          the_world->name_of(0), name_of(first), the_world->name_of(rank), name_of(theirs),
          name_of(std::min(first, theirs)));
  }
}

int64_t of_first_rank(int64_t value) {
  std::vector<int64_t> shared{value};
  if (the_world != nullptr) ranks::broadcast(*the_world, ranks::Tag::control, ranks::bytes_of(shared));
  return shared.front();
}

int code_of_stopped(int signal) { return the_world == nullptr ? 128 + signal : kGoOn; }

int leave_ranks(int code) {
  if (the_world == nullptr) return code;
  const bool failed = code != 0 && code != kGoOn && code < 128;
  if (failed) the_world->abort(code);
  the_world->finish();
  return code;
}

int cores_of_process() {
  const int usable = core::system::usable_cores();
  if (const int given = ranks::cores_per_task(); given > 0) return std::min(given, usable);
  const bool is_bound = usable < static_cast<int>(std::thread::hardware_concurrency());
  return the_world == nullptr || is_bound ? 0 : std::max(1, usable / the_world->ranks_on_host());
}

}  // namespace alibi::cli
