// Rotation of a part of head_dim, and scaled rotation. The tests of all models have the rest.
#include <gtest/gtest.h>

#include <cmath>
#include <utility>
#include <vector>

#include "alibi/transformer.h"
#include "core/access.h"
#include "model/small_transformer.h"
#include "model/transformer_state.h"
#include "nn/positions.h"
#include "testing.h"

namespace alibi::model {
namespace {

TransformerConfig partial(double factor) {
  TransformerConfig config = test::small_transformer(Position::rotary);
  config.d_model = 8 * config.attention.heads;
  config.attention.position_numbers["partial_rotary_factor"] = factor;
  return config;
}

TEST(PartialRotary, RotatesTheFirstPartAndLeavesTheRest) {
  const Transformer model(partial(0.5), 3);
  const int64_t heads = model.config().attention.heads;
  const Tensor x = test::random_tensor({2, 5, heads, 8}, 7);
  Tensor expected = x.clone(), found = x.clone();
  Tensor first = Tensor({2, 5, heads, 4});
  first.copy_from(x.slice(3, 0, 4));
  nn::rotary(first, 11, nn::rotary_frequencies(4, model.config().attention.rotary_theta), first);
  Tensor part = expected.slice(3, 0, 4);
  part.copy_from(first);
  core::state_of(model).positions.rotation->rotate(found, 11, {});
  EXPECT_EQ(found.to_floats(), expected.to_floats());
  core::state_of(model).positions.rotation->rotate_backward(found, 11);
  EXPECT_LE(test::max_abs_diff(found, x), 1e-6);
}

TEST(PartialRotary, ItsShareIsAnEvenNumberOfDimensions) {
  for (const double factor : {0.125, 0.3, 0.001}) {
    test::expect_error<UsageError>([&] { partial(factor).validate(); }, "expected an even number from 2 on");
  }
  for (const double factor : {0.25, 0.5, 0.75, 1.0}) partial(factor).validate();
}

/// The cosines and sines of position 1, which are the rotation of a vector of ones and zeros.
std::vector<std::pair<double, double>> turned(int head_dim, const PositionScale& scale) {
  TransformerConfig config = test::small_transformer(Position::rotary);
  config.d_model = head_dim * config.attention.heads;
  const Transformer model(config, 3);
  Tensor x({1, 1, 1, head_dim});
  x.slice(3, 0, head_dim / 2).fill(1);
  core::state_of(model).positions.rotation->rotate(x, 1, scale);
  std::vector<std::pair<double, double>> found;
  const float* const at = x.data<float>();
  for (int i = 0; i < head_dim / 2; ++i) {
    found.emplace_back(static_cast<double>(at[i]), static_cast<double>(at[head_dim / 2 + i]));
  }
  return found;
}

// The frequencies are those of ROPE_INIT_FUNCTIONS["yarn"] and ["dynamic"] (with factor 1) of transformers 5.23, with
// theta 10000.
TEST(ScaledRotary, HasTheFrequenciesOfTransformers) {
  struct Case {
    PositionScale scale;
    double magnitude;
    std::vector<double> frequencies;
  };
  const std::vector<Case> cases = {
      {{1 / 16.0f, RotaryScaling::yarn, 128},
       1.2772588722239782,
       {1.0, 0.4744755, 0.21740657, 0.09447109, 0.037499998, 0.012301217, 0.0019764237, 0.0011114246, 0.00062499999,
        0.00035146333, 0.00019764237, 0.00011114246, 6.2500003e-05, 3.5146331e-05, 1.9764237e-05, 1.1114246e-05}},
      {{0.25f, RotaryScaling::yarn, 2048},
       1.138629436111989,
       {1.0, 0.31622776, 0.1, 0.025693506, 0.0062499996, 0.0013834966, 0.00025000001, 7.9056947e-05}},
      {{0.5f, RotaryScaling::yarn, 512},
       1.0693147180559945,
       {1.0,           0.7498942,     0.56234133,    0.42169651,    0.30406514,    0.21889603,    0.15730932,
        0.11283644,    0.080769226,   0.057684168,   0.041094169,   0.029194372,   0.02067643,    0.014593068,
        0.010259304,   0.0071805003,  0.0049999999,  0.0037494712,  0.0028117066,  0.0021084824,  0.0015811389,
        0.0011856869,  0.00088913972, 0.00066676072, 0.00050000002, 0.00037494709, 0.00028117065, 0.00021084824,
        0.00015811389, 0.00011856869, 8.891397e-05,  6.6676075e-05}},
      {{0.25f, RotaryScaling::ntk, 2048},
       1,
       {1.0, 0.25941283, 0.067295007, 0.017457189, 0.0045286184, 0.0011747816, 0.0003047534, 7.9056947e-05}},
  };
  for (const auto& [scale, magnitude, frequencies] : cases) {
    const auto found = turned(static_cast<int>(2 * frequencies.size()), scale);
    for (size_t i = 0; i < frequencies.size(); ++i) {
      EXPECT_NEAR(found[i].first, magnitude * std::cos(frequencies[i]), 1e-6) << i;
      EXPECT_NEAR(found[i].second, magnitude * std::sin(frequencies[i]), 1e-6) << i;
    }
  }
  // Nothing changes within the training length.
  for (const RotaryScaling rotary : {RotaryScaling::ntk, RotaryScaling::yarn}) {
    EXPECT_EQ(turned(16, {1, rotary, 128}), turned(16, {}));
  }
}

}  // namespace
}  // namespace alibi::model
