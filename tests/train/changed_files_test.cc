// Token files that was truncated while a model is trained on them or measured.
#include <gtest/gtest.h>

#include <filesystem>
#include <vector>

#include "alibi/evaluate.h"
#include "alibi/train.h"
#include "core/files.h"
#include "temporary_folder.h"
#include "testing.h"
#include "text/token_file.h"
#include "train/small_run.h"

namespace alibi::training {
namespace {

namespace fs = std::filesystem;
using test::expect_error;
using test::TemporaryFolder;

class ChangedFiles : public ::testing::Test {
 protected:
  TokenStream written(const char* name) const {
    const std::vector<int32_t> ids = test::stream(20'000);
    text::write_token_file(folder / name, ByteTokenizer(), [&](const text::AppendTokens& append) { append(ids, 1); });
    return text::read_token_file(folder / name).stream;
  }
  /// To the first page: the others are met as missing. To half of it: nothing but the size tells.
  void shrink(const char* name, bool by_pages) const { fs::resize_file(folder / name, by_pages ? 4096 : 80'000); }

  TemporaryFolder folder;
};

TEST_F(ChangedFiles, TrainingEndsWithoutAnotherCheckpoint) {
  for (const bool by_pages : {true, false}) {
    for (const bool held_out : {false, true}) {
      const TokenStream train_tokens = written("train.tokens"), valid_tokens = written("valid.tokens");
      LanguageModel model = test::small_model();
      TrainOptions options = test::short_run();
      options.eval_steps = 2;
      TrainRun run;
      run.folder = folder / "model";
      run.valid = valid_tokens.tokens;
      run.checkpoint_steps = 1;
      std::vector<float> weights;
      run.on_step = [&](const TrainStatus& status) {
        if (status.step > 3) ADD_FAILURE() << "update " << status.step;
        if (status.step != 3) return;
        weights = test::weights(model);
        shrink(held_out ? "valid.tokens" : "train.tokens", by_pages);
      };
      expect_error([&] { train(model, train_tokens.tokens, options, run); }, "was truncated");
      // Before a checkpoint the model is run on held-out text.
      EXPECT_EQ(newest_checkpoint(run.folder)->step, held_out ? 2 : 3);
      EXPECT_TRUE(held_out || test::weights(model) == weights) << "nothing was learned from zeros";
      fs::remove_all(run.folder);
    }
  }
}

TEST_F(ChangedFiles, ARunThatBeginsWithOneIsRefused) {
  for (const bool held_out : {false, true}) {
    const TokenStream train_tokens = written("train.tokens"), valid_tokens = written("valid.tokens");
    shrink(held_out ? "valid.tokens" : "train.tokens", true);
    LanguageModel model = test::small_model();
    TrainRun run;
    run.folder = folder / "model";
    run.valid = valid_tokens.tokens;
    expect_error([&] { train(model, train_tokens.tokens, test::short_run(), run); }, "was truncated");
    EXPECT_FALSE(fs::exists(run.folder));
  }
}

TEST_F(ChangedFiles, EvaluationGivesNoNumber) {
  for (const bool by_pages : {true, false}) {
    const TokenStream stream = written("valid.tokens");
    EvaluateOptions options;
    options.length = 128;
    options.batch_tokens = 1024;
    options.on_progress = [&](int64_t, int64_t) { shrink("valid.tokens", by_pages); };
    expect_error([&] { evaluate(test::small_model(), stream.tokens, options); }, "was truncated");
  }
}

}  // namespace
}  // namespace alibi::training
