#include "nn/adaptive_softmax.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "alibi/error.h"
#include "core/check.h"
#include "nn/adaptive_input.h"
#include "nn/adaptive_reference.h"

namespace alibi::nn {
namespace {

using test::Bands;
using test::Doubles;
using test::doubles;
using test::random_ids;
using test::random_tensor;

const core::Random no_draws(0);

/// Random targets, every seventh ignored.
Tensor targets_of(int64_t rows, int64_t first, int64_t last) {
  Tensor targets = random_ids({rows}, 9, last - first);
  for (int64_t row = 0; row < rows; ++row) targets.data<int32_t>()[row] += static_cast<int32_t>(first);
  for (int64_t row = 3; row < rows; row += 7) targets.data<int32_t>()[row] = -1;
  return targets;
}

Doubles nll_reference(const Bands& bands, const Doubles& flat, const Doubles& hidden,
                      const std::vector<int32_t>& targets) {
  const auto rows = static_cast<int64_t>(targets.size());
  const Doubles log_p = test::adaptive_log_reference(bands, flat, hidden, rows);
  Doubles nll(targets.size());
  for (size_t row = 0; row < targets.size(); ++row) {
    if (targets[row] >= 0) nll[row] = -log_p[row * test::at(bands.vocab()) + test::at(targets[row])];
  }
  return nll;
}

struct Case {
  Bands bands;
  int64_t rows, first, last;  // targets lie in [first, last)
};
/// One band; three; all targets in one band, each of them; bands of one word; more rows than a chunk.
const std::vector<Case> cases{{{{9}, {5}}, 8, 0, 9},
                              {{{4, 6, 11}, {8, 4, 1}}, 29, 0, 21},
                              {{{4, 6, 11}, {8, 4, 1}}, 12, 0, 4},
                              {{{4, 6, 11}, {8, 4, 1}}, 12, 4, 10},
                              {{{4, 6, 11}, {8, 4, 1}}, 12, 10, 21},
                              {{{1, 1, 1}, {7, 3, 2}}, 5, 0, 3},
                              {{{17, 50}, {6, 3}}, 2300, 0, 67}};

TEST(AdaptiveSoftmax, MatchesTheFloat64Distribution) {
  test::for_each_isa([] {
    for (const Case& c : cases) {
      SCOPED_TRACE(fmt::format("{} bands, {} rows", c.bands.sizes.size(), c.rows));
      const nn::AdaptiveWeights weights = test::random_weights(c.bands, 1);
      const Tensor hidden = random_tensor({c.rows, c.bands.d()}, 2), targets = targets_of(c.rows, c.first, c.last);
      std::vector<float> nll(test::at(c.rows), 99.0f);
      nn::adaptive_cross_entropy(hidden, weights, targets, nll);
      const Doubles expected = nll_reference(c.bands, test::flatten(weights), doubles(hidden), targets.to_ints());
      EXPECT_TRUE(test::max_abs_diff(nll, expected) <= 8e-6) << test::max_abs_diff(nll, expected);
    }
  });
}

TEST(AdaptiveSoftmax, LogProbabilitiesAreTheDistributionAndSumToOne) {
  test::for_each_isa([] {
    for (const Case& c : cases) {
      const nn::AdaptiveWeights weights = test::random_weights(c.bands, 1);
      const Tensor hidden = random_tensor({c.rows, c.bands.d()}, 2);
      Tensor found = Tensor::empty({c.rows, c.bands.vocab()});
      nn::adaptive_log_probabilities(hidden, weights, found);
      const Doubles log_p = doubles(found);
      const Doubles expected = test::adaptive_log_reference(c.bands, test::flatten(weights), doubles(hidden), c.rows);
      EXPECT_TRUE(test::max_abs_diff(log_p, expected) <= 8e-6) << test::max_abs_diff(log_p, expected);
      for (int64_t row = 0; row < c.rows; ++row) {
        double sum = 0;
        for (const double value : test::part(log_p, test::at(row * c.bands.vocab()), c.bands.vocab())) {
          sum += std::exp(value);
        }
        EXPECT_NEAR(sum, 1, 1e-5);
      }
    }
  });
}

TEST(AdaptiveSoftmax, GradientsOfTheScaledSum) {
  test::for_each_isa([] {
    for (const Case& c : cases) {
      if (c.rows > 100) continue;
      SCOPED_TRACE(fmt::format("{} bands, {} rows, targets from {}", c.bands.sizes.size(), c.rows, c.first));
      const double scale = 0.25;
      const nn::AdaptiveWeights weights = test::random_weights(c.bands, 1);
      const Tensor hidden = random_tensor({c.rows, c.bands.d()}, 2), targets = targets_of(c.rows, c.first, c.last);
      nn::AdaptiveWeights gradients = test::filled_like(weights, 2);
      Tensor dhidden({c.rows, c.bands.d()});
      dhidden.fill(99);
      std::vector<float> nll(test::at(c.rows)), alone(nll.size());
      nn::adaptive_cross_entropy_with_gradients(hidden, weights, targets, 0.25f, 0, no_draws, nll, dhidden, gradients);
      nn::adaptive_cross_entropy(hidden, weights, targets, alone);
      EXPECT_EQ(nll, alone);
      const auto loss = [&](const Doubles& flat, const Doubles& x) {
        double sum = 0;
        for (const double value : nll_reference(c.bands, flat, x, targets.to_ints())) sum += scale * value;
        return sum;
      };
      const Doubles flat = test::flatten(weights), x = doubles(hidden);
      Doubles expected = test::numerical_gradient([&](const Doubles& v) { return loss(v, x); }, flat);
      for (double& value : expected) value += 2;
      EXPECT_TRUE(test::max_abs_diff(test::flatten(gradients), expected) <= 2e-6);
      const Doubles dx = test::numerical_gradient([&](const Doubles& v) { return loss(flat, v); }, x);
      EXPECT_TRUE(test::max_abs_diff(doubles(dhidden), dx) <= 2e-6);
    }
  });
}

// One set of tables on both sides: the gradients of input and output are added to the same tensors.
TEST(AdaptiveSoftmax, GradientsOfTiedWeightsAddUp) {
  const Case c = cases[1];
  const nn::AdaptiveWeights weights = test::random_weights(c.bands, 1);
  const Tensor ids = random_ids({c.rows}, 5, c.bands.vocab()), targets = targets_of(c.rows, 0, c.bands.vocab());
  Tensor x = Tensor::empty({c.rows, c.bands.d()}), dx = Tensor::empty({c.rows, c.bands.d()});
  nn::adaptive_input(ids, weights, 2, x);
  nn::AdaptiveWeights gradients = test::filled_like(weights, 0);
  std::vector<float> nll(test::at(c.rows));
  nn::adaptive_cross_entropy_with_gradients(x, weights, targets, 1, 0, no_draws, nll, dx, gradients);
  nn::adaptive_input_backward(dx, ids, weights, 2, gradients);
  const Doubles expected = test::numerical_gradient(
      [&](const Doubles& flat) {
        const Doubles input = test::adaptive_input_reference(c.bands, flat, ids.to_ints(), 2);
        const Doubles losses = nll_reference(c.bands, flat, input, targets.to_ints());
        return std::accumulate(losses.begin(), losses.end(), 0.0);
      },
      test::flatten(weights));
  EXPECT_TRUE(test::relative_diff(test::flatten(gradients), expected) <= 4e-6);
}

// With the masks known (they are functions of the seed), dropout is a product by constants.
TEST(AdaptiveSoftmax, DropoutHasTheGradientsOfItsMasks) {
  const Bands bands{{4, 9}, {8, 4}};
  const int64_t rows = 40;
  nn::AdaptiveWeights weights = test::random_weights(bands, 1);
  Tensor hidden = random_tensor({rows, 8}, 2);
  const Tensor targets = targets_of(rows, 0, 13);
  const core::Random draws(3, 4);
  const auto run = [&](Tensor& dhidden, nn::AdaptiveWeights& gradients) {
    std::vector<float> nll(test::at(rows));
    nn::adaptive_cross_entropy_with_gradients(hidden, weights, targets, 1, 0.3f, draws, nll, dhidden, gradients);
    return std::accumulate(nll.begin(), nll.end(), 0.0);
  };
  Tensor dhidden({rows, 8}), unused({rows, 8});
  nn::AdaptiveWeights gradients = test::filled_like(weights, 0), others = test::filled_like(weights, 0);
  const double loss = run(dhidden, gradients);
  EXPECT_EQ(run(unused, others), loss);
  double zeros = 0;
  for (const double value : doubles(dhidden)) zeros += value == 0;
  EXPECT_GT(zeros, 320 * 0.3);  // dropped, or of the rows that are not scored

  const auto check_direction = [&](Tensor value, const Tensor& gradient, uint64_t seed, const char* name) {
    const Tensor original = value.clone(), direction = random_tensor(value.shape(), seed);
    const auto loss_at = [&](float step) {
      for (int64_t i = 0; i < value.elements(); ++i) {
        value.data<float>()[i] = original.data<float>()[i] + step * direction.data<float>()[i];
      }
      return run(unused, others);
    };
    const double found = (loss_at(1e-2f) - loss_at(-1e-2f)) / 2e-2;
    value.copy_from(original);
    const double expected = test::dot(doubles(gradient), doubles(direction));
    const double size = std::sqrt(test::dot(doubles(gradient), doubles(gradient)));
    EXPECT_TRUE(std::abs(found - expected) <= 5e-3 * size) << name << " " << found << " " << expected;
  };
  check_direction(hidden, dhidden, 11, "hidden");
  check_direction(weights.tables[0], gradients.tables[0], 12, "head");
  check_direction(weights.tables[1], gradients.tables[1], 13, "table");
  check_direction(weights.projections[1], gradients.projections[1], 14, "projection");
}

// A row's gradient of a projection is its states times its gradient behind the projection: rows of zeros show the mask
// of the states, columns of zeros that of the band.
TEST(AdaptiveSoftmax, BandsHaveMasksOfTheirOwn) {
  const Bands bands{{2, 3, 4}, {64, 64, 64}};
  const nn::AdaptiveWeights weights = test::random_weights(bands, 1);
  const Tensor hidden = random_tensor({1, 64}, 2);
  std::vector<std::vector<bool>> masks;
  for (const int32_t target : {3, 6}) {
    nn::AdaptiveWeights gradients = test::filled_like(weights, 0);
    Tensor dhidden({1, 64});
    float nll = 0;
    nn::adaptive_cross_entropy_with_gradients(hidden, weights, Tensor::from(std::vector<int32_t>{target}, {1}), 1, 0.5f,
                                              core::Random(3, 4), {&nll, 1}, dhidden, gradients);
    const Doubles gradient = doubles(gradients.projections[target == 3 ? 1 : 2]);
    std::vector<bool> states(64), band(64);
    for (size_t i = 0; i < 64 * 64; ++i) {
      if (gradient[i] != 0) states[i / 64] = band[i % 64] = true;
    }
    masks.push_back(states);
    masks.push_back(band);
  }
  EXPECT_EQ(masks[0], masks[2]) << "the states are the same for both bands";
  for (const auto& mask : masks) EXPECT_NEAR(static_cast<double>(std::count(mask.begin(), mask.end(), true)), 32, 14);
  EXPECT_NE(masks[1], masks[0]);
  EXPECT_NE(masks[3], masks[2]);
  EXPECT_NE(masks[1], masks[3]);
}

TEST(AdaptiveSoftmax, Bfloat16StatesWithFloat32LossesAndGradients) {
  const Bands bands{{40, 60, 70}, {32, 8, 2}};
  const int64_t rows = 200;
  const nn::AdaptiveWeights weights = test::random_weights(bands, 1, DType::bfloat16);
  nn::AdaptiveWeights wide;
  for (const Tensor& table : weights.tables) wide.tables.push_back(table.to(DType::float32));
  for (const Tensor& projection : weights.projections) wide.projections.push_back(projection.to(DType::float32));
  const Tensor hidden = random_tensor({rows, 32}, 2, 0.3f, DType::bfloat16), targets = targets_of(rows, 0, 170);
  std::vector<float> nll(test::at(rows)), expected(nll.size());
  Tensor dhidden({rows, 32}, DType::bfloat16), dhidden_wide({rows, 32});
  nn::AdaptiveWeights gradients = test::filled_like(weights, 0), gradients_wide = test::filled_like(weights, 0);
  nn::adaptive_cross_entropy_with_gradients(hidden, weights, targets, 1, 0, no_draws, nll, dhidden, gradients);
  nn::adaptive_cross_entropy_with_gradients(hidden.to(DType::float32), wide, targets, 1, 0, no_draws, expected,
                                            dhidden_wide, gradients_wide);
  // The projected states are rounded to bfloat16 once.
  EXPECT_TRUE(test::max_abs_diff(nll, expected) <= 0x1p-6) << test::max_abs_diff(nll, expected);
  EXPECT_TRUE(test::relative_diff(doubles(dhidden), doubles(dhidden_wide)) <= 0x1p-6);
  EXPECT_TRUE(test::relative_diff(test::flatten(gradients), test::flatten(gradients_wide)) <= 0x1p-6);
}

TEST(AdaptiveSoftmax, SameBitsAtAnyThreadCount) {
  const Bands bands{{100, 300, 3000}, {64, 16, 4}};
  const int64_t rows = 1500;
  const nn::AdaptiveWeights weights = test::random_weights(bands, 1);
  const Tensor hidden = random_tensor({rows, 64}, 2), targets = targets_of(rows, 0, bands.vocab());
  test::expect_same_bits_at_any_thread_count([&] {
    std::vector<float> nll(test::at(rows));
    Tensor dhidden = Tensor::empty({rows, 64}), log_p = Tensor::empty({rows, bands.vocab()});
    nn::AdaptiveWeights gradients = test::filled_like(weights, 0);
    nn::adaptive_cross_entropy_with_gradients(hidden, weights, targets, 1, 0.2f, core::Random(1, 2), nll, dhidden,
                                              gradients);
    nn::adaptive_log_probabilities(hidden, weights, log_p);
    std::vector<Tensor> results{dhidden, log_p, Tensor::from(nll, {rows})};
    results.insert(results.end(), gradients.tables.begin(), gradients.tables.end());
    results.insert(results.end(), gradients.projections.begin(), gradients.projections.end());
    return results;
  });
}

TEST(AdaptiveSoftmax, NeverHoldsAllLogits) {
  const Bands bands{{2000, 6000}, {8, 2}};
  const int64_t rows = 8192;
  const nn::AdaptiveWeights weights = test::random_weights(bands, 1);
  nn::AdaptiveWeights gradients = test::filled_like(weights, 0);
  const Tensor hidden = random_tensor({rows, 8}, 2), targets = targets_of(rows, 0, bands.vocab());
  Tensor dhidden = Tensor::empty({rows, 8});
  std::vector<float> nll(test::at(rows));
  const int64_t before = tensor_bytes();
  reset_peak_tensor_bytes();
  nn::adaptive_cross_entropy_with_gradients(hidden, weights, targets, 1, 0, no_draws, nll, dhidden, gradients);
  EXPECT_LT(peak_tensor_bytes() - before, 4 * rows * bands.vocab() / 4);

  // Beside all log-probabilities, which are the result, only some rows of the first softmax exist.
  Tensor log_p = Tensor::empty({rows, bands.vocab()});
  const int64_t with_result = tensor_bytes();
  reset_peak_tensor_bytes();
  nn::adaptive_log_probabilities(hidden, weights, log_p);
  EXPECT_LT(peak_tensor_bytes() - with_result, 4 * rows * 2000 / 8);
}

TEST(AdaptiveSoftmax, ErrorsNameTheArgument) {
  const Bands bands{{4, 6}, {8, 2}};
  const nn::AdaptiveWeights weights = test::random_weights(bands, 1);
  const Tensor hidden({2, 8});
  std::vector<float> nll(2);
  for (const int32_t bad : {-2, 10}) {
    const Tensor targets = Tensor::from(std::vector<int32_t>{0, bad}, {2});
    EXPECT_EQ(test::message_of([&] { nn::adaptive_cross_entropy(hidden, weights, targets, nll); }),
              "[adaptive_cross_entropy] target " + std::to_string(bad) + " at row 1, expected -1 to 9");
  }
  const Tensor targets({2}, DType::int32);
  EXPECT_THROW(nn::adaptive_cross_entropy(Tensor({2, 7}), weights, targets, nll), Error);
  EXPECT_THROW(nn::adaptive_cross_entropy(hidden.to(DType::bfloat16), weights, targets, nll), Error);
  Tensor dhidden({2, 8}), too_narrow({2, 9});
  nn::AdaptiveWeights gradients = test::filled_like(weights, 0);
  gradients.tables[1] = Tensor({5, 2});
  EXPECT_THROW(
      nn::adaptive_cross_entropy_with_gradients(hidden, weights, targets, 1, 0, no_draws, nll, dhidden, gradients),
      Error);
  EXPECT_THROW(nn::adaptive_log_probabilities(hidden, weights, too_narrow), Error);
  nll.resize(3);
  EXPECT_THROW(nn::adaptive_cross_entropy(hidden, weights, targets, nll), Error);
}

}  // namespace
}  // namespace alibi::nn
