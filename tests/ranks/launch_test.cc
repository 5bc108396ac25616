// What the environment says about the ranks that were started together.
#include <gtest/gtest.h>

#include <cstdlib>
#include <initializer_list>
#include <string>
#include <utility>

#include "ranks/world.h"
#include "testing.h"

namespace alibi::ranks {
namespace {

class Launch : public ::testing::Test {
 protected:
  Launch() { clear(); }
  ~Launch() override { clear(); }

  static void clear() {
    for (const char* name :
         {"OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "PMIX_RANK", "SLURM_STEP_NUM_TASKS", "SLURM_CPUS_PER_TASK"}) {
      ::unsetenv(name);
    }
  }
  static int ranks_with(std::initializer_list<std::pair<const char*, const char*>> variables) {
    clear();
    for (const auto& [name, value] : variables) ::setenv(name, value, 1);
    return launched_ranks();
  }
};

TEST_F(Launch, TheNumberOfRanksIsThatOfTheLauncher) {
  EXPECT_EQ(ranks_with({}), 1);
  EXPECT_EQ(ranks_with({{"OMPI_COMM_WORLD_SIZE", "4"}}), 4);
  EXPECT_EQ(ranks_with({{"PMI_SIZE", "3"}}), 3);
  EXPECT_EQ(ranks_with({{"PMIX_RANK", "0"}, {"SLURM_STEP_NUM_TASKS", "8"}}), 8);
  EXPECT_EQ(ranks_with({{"SLURM_STEP_NUM_TASKS", "1"}}), 1);
  // mpirun inside a job of Slurm.
  EXPECT_EQ(ranks_with({{"OMPI_COMM_WORLD_SIZE", "4"}, {"SLURM_STEP_NUM_TASKS", "2"}}), 4);
  EXPECT_EQ(ranks_with({{"OMPI_COMM_WORLD_SIZE", "many"}}), 1);
}

TEST_F(Launch, SrunWithoutPmiIsExplained) {
  test::expect_error<UsageError>(
      [] {
        ranks_with({{"SLURM_STEP_NUM_TASKS", "4"}});
      },
      "srun started 4 tasks without PMI");
}

TEST_F(Launch, CoresOfATaskAreThoseOfTheScheduler) {
  EXPECT_EQ(cores_per_task(), 0);
  ::setenv("SLURM_CPUS_PER_TASK", "12", 1);
  EXPECT_EQ(cores_per_task(), 12);
}

}  // namespace
}  // namespace alibi::ranks
