#include <gtest/gtest.h>

#include <numeric>

#include "testing.h"
#include "train/batches.h"
#include "train/small_run.h"

namespace alibi::training {
namespace {

/// The mean loss of all tokens and its gradient, block by block: each token weighs the same.
TEST(Update, AShortLastBlockWeighsByItsTokens) {
  const std::vector<int32_t> tokens = test::stream(37);  // blocks of 16, 16 and 5
  TrainOptions options = test::short_run();
  options.batch_tokens = 3 * 16;
  LanguageModel model = test::small_model();
  BlockOrder order(tokens, options.train_length, 256, options.seed);
  ASSERT_EQ(blocks_per_update(options), order.blocks_per_epoch());

  double nll = 0;
  model.zero_gradients();
  for (int64_t block = 0; block < 3; ++block) {
    const Batch batch = order.batch(std::span(&block, 1));
    for (const float value : model.nll(batch.ids, batch.targets)) nll += static_cast<double>(value);
    model.accumulate_gradients(batch.ids, batch.targets, 1.0f / 37, {});
  }
  std::vector<std::vector<double>> expected;
  for (const Parameter* parameter : model.parameters()) expected.push_back(test::doubles(parameter->gradient));

  for (const int64_t at_once : {16, 1000}) {  // apart, and the whole blocks together
    options.micro_batch_tokens = at_once;
    const UpdateLoss found = compute_gradients(model, order, 0, options);
    EXPECT_EQ(found.tokens, 37);
    EXPECT_NEAR(found.loss, nll / 37, 1e-5);
    for (size_t i = 0; i < expected.size(); ++i) {
      const Parameter& parameter = *model.parameters()[i];
      EXPECT_TRUE(test::relative_diff(test::doubles(parameter.gradient), expected[i]) <= 1e-5) << parameter.name;
    }
  }
}

}  // namespace
}  // namespace alibi::training
