// Stub for a build without MPI.
#include "core/check.h"
#include "ranks/world.h"

std::unique_ptr<alibi::ranks::World> alibi::ranks::join() {
  const int ranks = launched_ranks();
  check_usage(ranks == 1,
              "[ranks] {} ranks were started together, but this build of alibi has no MPI; start it alone, or build it "
              "with -DALIBI_MPI=ON",
              ranks);
  return nullptr;
}
