#include "alibi/attention_map.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "alibi/attention.h"
#include "bench/attention_inputs.h"
#include "testing.h"

namespace alibi::evaluation {
namespace {

LanguageModel model_with_groups(Position position, int64_t window = 0) {
  LanguageModelConfig config = with_position(preset("tiny"), position, 32);
  config.transformer.layers = 2;
  config.transformer.d_model = 32;
  config.transformer.attention.heads = 4;
  config.transformer.attention.kv_heads = 2;
  config.transformer.attention.sliding_window = window;
  config.transformer.block.norm_eps = 1e-12f;
  return LanguageModel(config, 3, std::make_shared<ByteTokenizer>());
}

std::vector<int32_t> some_tokens(size_t count) {
  std::vector<int32_t> tokens(count);
  for (size_t i = 0; i < count; ++i) tokens[i] = static_cast<int32_t>(i * i * 7 % 251);
  return tokens;
}

TEST(AttentionMap, IsTheWeightsOfTheReference) {
  constexpr int64_t kLength = 48, kFirst = kLength - kLength / 4;
  const std::vector<int32_t> tokens = some_tokens(kLength);
  for (const auto& [position, window] : std::vector<std::pair<Position, int64_t>>{
           {Position::alibi, 0}, {Position::t5, 0}, {Position::rotary, 0}, {Position::none, 0}, {Position::alibi, 6}}) {
    SCOPED_TRACE(name_of(position));
    const LanguageModel model = model_with_groups(position, window);
    const AttentionMap map = attention_map(model, tokens, kLength, 1);
    ASSERT_EQ(map.heads.size(), 8u);
    ASSERT_EQ(map.distances.back(), kFirst + 1);
    const std::vector<bench::AttentionInputs> layers = bench::capture(model, tokens);
    for (const HeadAttention& head : map.heads) {
      bench::AttentionInputs inputs = layers[static_cast<size_t>(head.layer)].head(head.head);
      // With one-hot values the output is the row of weights.
      std::vector<float> one_hot(static_cast<size_t>(kLength * kLength));
      for (int64_t i = 0; i < kLength; ++i) one_hot[static_cast<size_t>(i * kLength + i)] = 1;
      const Tensor values = Tensor::from(one_hot, {1, kLength, 1, kLength});
      AttentionOptions options = inputs.options;
      options.softmax_scale = 1 / std::sqrt(static_cast<float>(inputs.q.size(3)));
      std::vector<double> means(static_cast<size_t>(kFirst + 1));
      const auto padded = [&](const Tensor& tensor) {
        std::vector<float> wide(static_cast<size_t>(kLength * kLength));
        const std::vector<float> narrow = tensor.to_floats();
        const auto dim = static_cast<int64_t>(tensor.size(3));
        for (int64_t i = 0; i < kLength; ++i) {
          for (int64_t e = 0; e < dim; ++e) {
            wide[static_cast<size_t>(i * kLength + e)] = narrow[static_cast<size_t>(i * dim + e)];
          }
        }
        return Tensor::from(wide, {1, kLength, 1, kLength});
      };
      std::vector<double> weights;
      attention_reference(padded(inputs.q), padded(inputs.k), values, options, weights);
      for (int64_t i = kFirst; i < kLength; ++i) {
        for (int64_t distance = 0; distance <= kFirst; ++distance) {
          means[static_cast<size_t>(distance)] +=
              weights[static_cast<size_t>(i * kLength + i - distance)] / static_cast<double>(kLength - kFirst);
        }
      }
      double total = 0;
      for (size_t bin = 0; bin + 1 < map.distances.size(); ++bin) {
        const int64_t begin = map.distances[bin], end = map.distances[bin + 1];
        const double mean =
            std::accumulate(means.begin() + begin, means.begin() + end, 0.0) / static_cast<double>(end - begin);
        EXPECT_TRUE(std::abs(head.weight[bin] - mean) <= 1e-6) << head.weight[bin] << " and " << mean;
        total += head.bias[bin] * static_cast<double>(end - begin);
      }
      EXPECT_LE(total, 1.0001);
      EXPECT_EQ(std::isfinite(head.slope), position == Position::alibi);
    }
  }
}

TEST(AttentionMap, TheSlopeAloneIsAGeometricSeries) {
  const AttentionMap map = attention_map(model_with_groups(Position::alibi), some_tokens(300), 256, 2);
  const HeadAttention& steepest = map.heads.front();
  EXPECT_FLOAT_EQ(static_cast<float>(steepest.slope), 0.25f);
  for (size_t bin = 0; bin < 3; ++bin) {
    const double expected = std::exp(-0.25 * static_cast<double>(bin)) * (1 - std::exp(-0.25));
    EXPECT_TRUE(std::abs(steepest.bias[bin] - expected) <= 1e-9) << bin;
  }
}

TEST(AttentionMap, RefusesWhatItCannotShow) {
  const LanguageModel model = model_with_groups(Position::alibi);
  EXPECT_THROW(attention_map(model, some_tokens(20), 32), UsageError);
  EXPECT_THROW(attention_map(model, some_tokens(20), 4), UsageError);
  EXPECT_THROW(attention_map(model, some_tokens(20), 16, 0), UsageError);
}

}  // namespace
}  // namespace alibi::evaluation
