// A run that an earlier version began and finished, kept in earlier/: this version reads it and comes to the same end.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <vector>

#include "alibi/train.h"
#include "shared_data.h"
#include "temporary_folder.h"
#include "testing.h"
#include "train/small_run.h"

namespace alibi::training {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kHalf = 3, kAll = 6;

/// No option has its default, dropout needs the random numbers, and evaluations the held-out text.
TrainOptions earlier_options() {
  TrainOptions options;
  options.train_length = 16;
  options.train_tokens = kAll * 64;
  options.batch_tokens = 64;
  options.micro_batch_tokens = 32;
  options.weight_decay = 0.25;
  options.beta1 = 0.85;
  options.beta2 = 0.95;
  options.eps = 1e-7;
  options.momentum = 0.9;
  options.clip = 0.5;
  options.schedule_kind = ScheduleKind::fairseq;
  options.learning_rate = 0.01;
  options.warmup_fraction = 0.1;
  options.warmup_steps = 2;
  options.final_fraction = 0.2;
  options.warmup_from = 1e-3;
  options.floor = 2e-4;
  options.period = 5;
  options.eval_steps = 2;
  options.eval_tokens = 33;
  options.patience = 4;
  options.seed = 3;
  return options;
}

LanguageModel earlier_model() {
  LanguageModelConfig config = test::small_config(1, 4, 2);
  config.transformer.block.expansion = 2;
  config.transformer.block.dropout = 0.1f;
  return LanguageModel(config, 5);
}

/// The run in `folder`, or the rest of it.
TrainResult earlier_run(LanguageModel& model, const fs::path& folder, bool resume) {
  const std::vector<int32_t> tokens = test::stream(300), valid = test::stream(70);
  TrainRun run;
  run.folder = folder;
  run.resume = resume;
  run.valid = valid;
  run.checkpoint_steps = kHalf;
  run.keep = kAll;
  return train(model, tokens, earlier_options(), run);
}

fs::path checkpoint(const fs::path& folder, int64_t step) {
  return folder / "checkpoints" / ("step-00000" + std::to_string(step));
}

/// With ALIBI_WRITE_EARLIER_RUN=FOLDER it writes there what earlier/checkpoints has. That stands for versions before
/// this one: it was written when options were first described in one place, by the commit before, and stays as it is.
TEST(EarlierVersion, ItsRunIsResumedToTheSameEnd) {
  const test::RuntimeGuard guard;
  set_isa(available_isas().front());
  if (const char* folder = std::getenv("ALIBI_WRITE_EARLIER_RUN")) {
    LanguageModel model = earlier_model();
    earlier_run(model, folder, false);
    GTEST_SKIP() << "wrote the run to " << folder;
  }
  const fs::path earlier = test::test_sources() / "train/earlier";
  const LanguageModel expected = LanguageModel::load(checkpoint(earlier, kAll));
  const test::TemporaryFolder resumed, whole;
  fs::create_directories(resumed / "checkpoints");
  fs::copy(checkpoint(earlier, kHalf), checkpoint(resumed.path(), kHalf), fs::copy_options::recursive);

  LanguageModel model = earlier_model(), again = earlier_model();
  const TrainResult result = earlier_run(model, resumed.path(), true);
  EXPECT_EQ(result.resumed_step, kHalf);
  EXPECT_EQ(result.steps, kAll);
  EXPECT_TRUE(test::max_abs_diff(test::weights(model), test::weights(expected)) <= 1e-6);

  // To the bit where the first updates are: oneDNN and the math library of another machine may round otherwise.
  earlier_run(again, whole.path(), false);
  const auto weights_at_half = [](const fs::path& folder) {
    return test::weights(LanguageModel::load(checkpoint(folder, kHalf)));
  };
  if (weights_at_half(whole.path()) == weights_at_half(earlier)) {
    EXPECT_EQ(test::weights(model), test::weights(expected));
    EXPECT_EQ(test::weights(again), test::weights(expected));
  }
}

}  // namespace
}  // namespace alibi::training
