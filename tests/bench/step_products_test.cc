#include "bench/step_products.h"

#include <gtest/gtest.h>

#include <cmath>
#include <tuple>

#include "bench/train_step.h"
#include "nn/linear.h"
#include "testing.h"

namespace alibi::bench {
namespace {

LanguageModelConfig narrow_config(int layers, Position position = Position::alibi) {
  LanguageModelConfig config = preset("tiny");
  config.transformer.layers = layers;
  config.transformer.d_model = 32;
  config.transformer.heads = 4;
  return with_position(config, position, 64);
}

StepProducts products_of(TrainStep& step) {
  return {record_products([&] { step.run(); }), step.model().parameters(), 0};
}

TEST(StepProducts, AreThoseOfOneBlockAndTheHead) {
  TrainStep step(narrow_config(1), step_options(64, 128, 64));  // two micro-batches of 64 rows
  const StepProducts products = products_of(step);
  using Row = std::tuple<std::string, std::string, int64_t, int64_t, int64_t, std::string>;
  const std::vector<Row> expected = {
      {"attn.Wqkv", "y", 64, 96, 32, "x W'"},
      {"attn.out_proj", "y", 64, 32, 32, "x W'"},
      {"ffn.up_proj", "y", 64, 128, 32, "x W'"},
      {"ffn.down_proj", "y", 64, 32, 128, "x W'"},
      {"wte", "y", 64, 257, 32, "x W'"},
      {"wte", "dx", 64, 32, 257, "dy W"},
      {"wte", "dweight", 257, 32, 64, "+= dy' x"},
      {"ffn.down_proj", "dx", 64, 128, 32, "dy W"},
      {"ffn.down_proj", "dweight", 32, 128, 64, "+= dy' x"},
      {"ffn.up_proj", "dx", 64, 32, 128, "dy W"},
      {"ffn.up_proj", "dweight", 128, 32, 64, "+= dy' x"},
      {"attn.out_proj", "dx", 64, 32, 32, "dy W"},
      {"attn.out_proj", "dweight", 32, 32, 64, "+= dy' x"},
      {"attn.Wqkv", "dx", 64, 32, 96, "dy W"},
      {"attn.Wqkv", "dweight", 96, 32, 64, "+= dy' x"},
  };
  std::vector<Row> found;
  for (const ProductKind& kind : products.kinds()) {
    found.emplace_back(kind.parameter, kind.pass, kind.product.m, kind.product.n, kind.product.k, kind.operands());
    EXPECT_EQ(kind.times, 2) << kind.parameter << " " << kind.pass;
    EXPECT_EQ(kind.flops(), 2.0 * static_cast<double>(kind.product.m * kind.product.n * kind.product.k));
  }
  EXPECT_EQ(found, expected);
}

TEST(StepProducts, LayersOfOneShapeAreOneKind) {
  TrainStep step(narrow_config(3), step_options(64, 64, 64));
  const StepProducts products = products_of(step);
  for (const ProductKind& kind : products.kinds()) EXPECT_EQ(kind.times, kind.parameter == "wte" ? 1 : 3);
}

TEST(StepProducts, ReachEveryMatrix) {
  constexpr double layer_weights = 12 * 32 * 32, head_weights = 257 * 32;
  for (const Precision precision : {Precision::f32, Precision::bf16}) {
    for (const bool recompute : {false, true}) {
      TrainOptions options = step_options(64, 256, 192);
      options.precision = precision;
      options.recompute = recompute;
      TrainStep step(narrow_config(2, Position::learned), options);
      StepProducts products = products_of(step);
      // Queries, keys and values, and the wide feed-forward layer, are computed again.
      const double again = recompute ? 2.0 * (3 + 4) * 32 * 32 : 0;
      EXPECT_EQ(products.flops(), 256 * 2 * (3 * (2 * layer_weights + head_weights) + again));

      step.model().zero_gradients();
      const std::vector<double> seconds = products.run();
      ASSERT_EQ(seconds.size(), products.kinds().size());
      for (const double kind : seconds) EXPECT_GT(kind, 0);
      for (const Parameter* parameter : step.model().parameters()) {
        const bool is_product = parameter->decays || parameter->name == "wte.weight";
        const double size = test::max_abs(parameter->gradient.to_floats());
        EXPECT_EQ(size > 0, is_product) << parameter->name;
        EXPECT_TRUE(std::isfinite(size)) << parameter->name;
      }
    }
  }
}

TEST(StepProducts, SecondsOfAnotherStep) {
  TrainStep step(narrow_config(1), step_options(64, 128, 64));
  const StepProducts products = products_of(step);
  std::vector<RecordedProduct> again = record_products([&] { step.run(); });
  for (RecordedProduct& product : again) product.seconds = 0.25;
  EXPECT_EQ(products.seconds_in(again), std::vector<double>(products.kinds().size(), 0.5));
  again.pop_back();
  EXPECT_THROW(products.seconds_in(again), Error);
}

TEST(StepProducts, AreRecordedOnlyWhereAskedFor) {
  const Tensor a = Tensor::from(std::vector<float>{1, 2}, {1, 2}), none({0, 2});
  Tensor c({1, 1}), empty({0, 1});
  const std::vector<RecordedProduct> outer = record_products([&] {
    nn::matmul(a, false, a, true, c, false);
    EXPECT_EQ(record_products([&] { nn::matmul(a, false, a, true, c, true); }).size(), 1);
    nn::matmul(none, false, a, true, empty, false);
  });
  ASSERT_EQ(outer.size(), 1);
  EXPECT_FALSE(outer.front().product.accumulate);
  EXPECT_EQ(c.data<float>()[0], 10);
}

}  // namespace
}  // namespace alibi::bench
