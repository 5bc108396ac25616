#include "bench/generate_bench.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>
#include <string>

#include "small_config.h"
#include "testing.h"

namespace alibi::bench {
namespace {

TEST(GenerateBench, ContextsStandWhereTheyWereAskedTo) {
  LanguageModelConfig config = test::small_config(1);
  config.transformer.attention.alibi_bias_max = 2;
  const LanguageModel model(config, 1);
  GenerateBench generate_bench(model, {.seconds = 0.001, .longest = 0.001, .held = 1024, .memory_bytes = 1 << 20});
  const std::vector<GeneratePoint> points =
      generate_bench.measure({100, 2000, 100000}, [](double, const std::string&) {});
  ASSERT_EQ(points.size(), 3u);
  EXPECT_EQ(points[0].held, 100);
  EXPECT_EQ(points[1].held, 2000 - (2000 - 1024) / 64 * 64);
  EXPECT_EQ(points[2].held, 100000 - (100000 - 1024) / 64 * 64);
  EXPECT_EQ(points[0].evicted_share, 0);
  EXPECT_GT(points[2].evicted_share, 0);
  EXPECT_LT(points[2].evicted_share, 1e-20);
  EXPECT_LT(points[2].cache_bytes, 3 * points[1].cache_bytes / 2);
  for (const GeneratePoint& point : points) {
    EXPECT_GT(point.token_seconds, 0);
    EXPECT_GE(point.token_seconds, point.best_seconds);
    EXPECT_GT(point.prompt_rate, 0);
    EXPECT_GT(point.first_seconds, 0);
    EXPECT_EQ(to_json(point, 1e9)["context"], point.context);
  }
  EXPECT_FALSE(points[2].first_is_read);
  EXPECT_GT(generate_bench.weight_bytes(), 32 * 32 * 4);
  EXPECT_GT(generate_bench.bandwidth(), 0);
}

TEST(GenerateBench, RefusesGates) {
  LanguageModelConfig config = with_position(preset("tiny"), position_from("gates"), 128);
  config.transformer.layers = 1;
  const LanguageModel model(config, 1);
  GenerateBench generate_bench(model, {.seconds = 0.001});
  test::expect_error([&] { generate_bench.measure({100}, [](double, const std::string&) {}); }, "gates positions");
}

}  // namespace
}  // namespace alibi::bench
