#include "bench/step_products.h"

#include <gtest/gtest.h>

#include <cmath>

#include "bench/train_step.h"
#include "small_config.h"
#include "testing.h"

namespace alibi::bench {
namespace {

LanguageModelConfig narrow_config(int layers, Position position = Position::alibi) {
  return with_position(test::small_config(layers), position, 64);
}

TEST(StepProducts, ReachEveryMatrix) {
  constexpr double layer_weights = 12 * 32 * 32, head_weights = 257 * 32;
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    for (const bool recompute : {false, true}) {
      TrainOptions options = step_options(64, 256, 192);  // two micro-batches, of 192 and of 64 rows
      options.precision = precision;
      options.recompute = recompute;
      TrainStep step(narrow_config(2, Position::learned), options);
      step.run();
      StepProducts products(step.model(), options, 0);
      // Queries, keys and values, and the wide feed-forward layer, are computed again.
      const double again = recompute ? 2.0 * (3 + 4) * 32 * 32 : 0;
      EXPECT_EQ(products.flops(), 256 * 2 * (3 * (2 * layer_weights + head_weights) + again));

      step.model().zero_gradients();
      products.run();
      for (const Parameter* parameter : step.model().parameters()) {
        const bool is_product = parameter->decays || parameter->name == "wte.weight";
        const double size = test::max_abs(parameter->gradient.to_floats());
        EXPECT_EQ(size > 0, is_product) << parameter->name;
        EXPECT_TRUE(std::isfinite(size)) << parameter->name;
      }
    }
  }
}

TEST(StepProducts, RunEveryMicroBatchAndChunkOfTheHead) {
  // The same rows of activations serve every micro-batch, so the gradient of a weight is that of one micro-batch times
  // their number. The head is run in chunks; the activations of its chunks are alike, too.
  std::vector<float> one, two;
  for (const int64_t batch : {64, 128}) {
    const TrainOptions options = step_options(64, batch, 64);
    TrainStep step(narrow_config(1), options);
    step.run();
    StepProducts products(step.model(), options, 0);
    step.model().zero_gradients();
    products.run();
    std::vector<float>& found = batch == 64 ? one : two;
    for (const Parameter* parameter : step.model().parameters()) {
      if (parameter->name.find("Wqkv.weight") != std::string::npos) found = parameter->gradient.to_floats();
    }
  }
  ASSERT_EQ(one.size(), two.size());
  ASSERT_FALSE(one.empty());
  for (size_t i = 0; i < one.size(); ++i) {
    ASSERT_TRUE(std::abs(two[i] - 2 * one[i]) <= 1e-2f * std::abs(one[i]) + 1e-2f) << i;
  }
}

}  // namespace
}  // namespace alibi::bench
