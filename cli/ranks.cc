#include "ranks.h"

#include <algorithm>
#include <chrono>
#include <memory>
#include <thread>

#include "core/check.h"
#include "core/system.h"
#include "output.h"
#include "stop_signals.h"

namespace alibi::cli {
namespace {

std::unique_ptr<ranks::World> the_world;

}  // namespace

void join_ranks() {
  the_world = ranks::join();
  if (the_world != nullptr) speak_as_rank(*the_world);
}

ranks::World* world() { return the_world.get(); }

bool is_first_rank() { return the_world == nullptr || the_world->rank() == 0; }

void wait_for_ranks() {
  if (the_world != nullptr) ranks::barrier(*the_world);
}

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
