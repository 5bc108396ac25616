// Runs that diverge: told with the update, whenever it happens, and nothing that was there before is harmed.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <set>
#include <string>

#include "alibi/train.h"
#include "core/files.h"
#include "temporary_folder.h"
#include "testing.h"
#include "train/small_run.h"

namespace alibi::training {
namespace {

namespace fs = std::filesystem;
using test::small_model;
using test::stream;

/// Weights that are finite, and so large that nothing computed with them is.
TrainOptions diverging(int64_t updates) {
  TrainOptions options = test::short_run();
  options.train_tokens = updates * options.batch_tokens;
  options.learning_rate = 1e19;
  options.warmup_fraction = 0;
  return options;
}

std::set<std::string> files_of(const fs::path& folder) {
  std::set<std::string> all;
  for (const auto& entry : fs::recursive_directory_iterator(folder)) {
    if (entry.is_regular_file()) all.insert(entry.path().string() + ": " + core::read_file(entry.path()));
  }
  return all;
}

TEST(Divergence, OfTheLastUpdateIsTold) {
  for (const Position position : {Position::alibi, Position::learned}) {
    LanguageModel model = small_model(position);
    test::expect_error<NotFiniteError>([&] { train(model, stream(1000), diverging(1)); }, "[train] step 1: ");
  }
}

TEST(Divergence, NoCheckpointIsWrittenOfABrokenModel) {
  const test::TemporaryFolder folder;
  TrainRun run;
  run.folder = folder / "model";
  run.checkpoint_steps = 1;
  LanguageModel model = small_model();
  test::expect_error<NotFiniteError>([&] { train(model, stream(1000), diverging(3), run); },
                                     "There is no checkpoint yet");
  EXPECT_TRUE(fs::is_empty(folder / "model" / "checkpoints"));
}

TEST(Divergence, TheRunThatWasToBeReplacedIsWhole) {
  const test::TemporaryFolder folder;
  TrainRun run;
  run.folder = folder / "model";
  run.settings = "{}";
  LanguageModel model = small_model();
  train(model, stream(1000), test::short_run(), run);
  model.save(run.folder);
  const std::set<std::string> before = files_of(run.folder);
  run.overwrite = true;
  run.settings = "{\"other\": 1}";
  LanguageModel other = small_model();
  test::expect_error<NotFiniteError>([&] { train(other, stream(1000), diverging(1), run); }, "is unchanged");
  EXPECT_TRUE(files_of(run.folder) == before);
  // What goes well replaces it, with all of its own lines.
  TrainOptions longer = test::short_run();
  longer.seed = 5;
  LanguageModel another = small_model();
  train(another, stream(1000), longer, run);
  EXPECT_EQ(core::read_file(run.folder / "train.json"), run.settings);
  const std::string lines = core::read_file(run.folder / "metrics.jsonl");
  EXPECT_EQ(std::count(lines.begin(), lines.end(), '\n'), 30);
  EXPECT_EQ(newest_checkpoint(run.folder)->step, 30);
}

TEST(Divergence, ALossWithoutAGradientIsOne) {
  LanguageModel model = small_model();
  for (Parameter* parameter : model.parameters()) {
    parameter->value.copy_from(Tensor(parameter->value.shape()));  // all logits are 0, whatever is read
  }
  model.weights_changed();
  test::expect_error<NotFiniteError>([&] { train(model, stream(1000), test::short_run()); }, "the gradient norm is 0");
}

}  // namespace
}  // namespace alibi::training
