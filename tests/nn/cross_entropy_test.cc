#include "nn/cross_entropy.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "alibi/error.h"
#include "nn/reference.h"
#include "testing.h"

namespace alibi::nn {
namespace {

using test::doubles;
using test::matmul_reference;
using test::max_abs_diff;
using test::random_ids;
using test::random_tensor;

/// Random targets, every seventh ignored.
Tensor targets_of(int64_t rows, int64_t vocab) {
  Tensor targets = random_ids({rows}, 9, vocab);
  for (int64_t row = 3; row < rows; row += 7) targets.data<int32_t>()[row] = -1;
  return targets;
}

TEST(CrossEntropy, MatchesFloat64AcrossChunks) {
  test::for_each_isa([] {
    for (const auto& [rows, vocab] : {std::pair<int64_t, int64_t>{1, 1}, {5, 2}, {9, 257}, {4100, 17}, {3, 9001}}) {
      SCOPED_TRACE(rows);
      const int64_t d = 6;
      const Tensor hidden = random_tensor({rows, d}, 1), weight = random_tensor({vocab, d}, 2);
      const Tensor targets = targets_of(rows, vocab);
      std::vector<float> nll(static_cast<size_t>(rows), 99.0f);
      nn::linear_cross_entropy(hidden, weight, targets, nll);
      const auto logits = matmul_reference(doubles(hidden), false, doubles(weight), true, rows, vocab, d);
      const auto expected = test::cross_entropy_reference(logits, targets.to_ints());
      EXPECT_TRUE(max_abs_diff(nll, expected) <= 4e-6) << max_abs_diff(nll, expected);
    }
  });
}

TEST(CrossEntropy, LargeLogitsNeitherOverflowNorVanish) {
  const Tensor hidden = Tensor::from(std::vector<float>{1}, {1, 1});
  const Tensor weight = Tensor::from(std::vector<float>{1e5f, 1e5f, -1e30f}, {3, 1});
  float nll = 0;
  nn::linear_cross_entropy(hidden, weight, Tensor::from(std::vector<int32_t>{1}, {1}), {&nll, 1});
  EXPECT_NEAR(nll, std::log(2.0), 1e-6);
}

TEST(CrossEntropy, ManyWordsOfOneProbabilityAddUp) {
  // Equal addends are rounded the same way each time: one long float32 sum would drift.
  constexpr int64_t vocab = 1 << 18;
  const Tensor hidden = Tensor::from(std::vector<float>{std::log(0.1f)}, {1, 1});
  Tensor weight = Tensor::empty({vocab, 1});
  weight.fill(1);
  weight.data<float>()[0] = 0;  // the likeliest word
  test::for_each_isa([&] {
    float nll = 0;
    nn::linear_cross_entropy(hidden, weight, Tensor::from(std::vector<int32_t>{0}, {1}), {&nll, 1});
    const double expected = std::log(1 + static_cast<double>(0.1f) * (vocab - 1));
    EXPECT_TRUE(std::abs(static_cast<double>(nll) - expected) <= 1e-4) << static_cast<double>(nll) - expected;
  });
}

TEST(CrossEntropy, TheSameLogitsFarBelowZeroGiveTheSameLoss) {
  test::for_each_isa([] {
    for (const int64_t vocab : {1, 2, 3, 16, 17, 31, 257}) {
      const Tensor hidden = Tensor::from(std::vector<float>{1}, {1, 1}), weight = random_ids({vocab}, 3, 9);
      Tensor near = Tensor::empty({vocab, 1}), far = Tensor::empty({vocab, 1});
      for (int64_t i = 0; i < vocab; ++i) {
        near.data<float>()[i] = static_cast<float>(weight.data<int32_t>()[i]);
        far.data<float>()[i] = near.data<float>()[i] - 1024;
      }
      const Tensor target = Tensor::from(std::vector<int32_t>{static_cast<int32_t>(vocab - 1)}, {1});
      float expected = 0, found = 0;
      nn::linear_cross_entropy(hidden, near, target, {&expected, 1});
      nn::linear_cross_entropy(hidden, far, target, {&found, 1});
      EXPECT_TRUE(std::abs(found - expected) <= 1e-6f) << vocab << ": " << found << ", expected " << expected;
    }
  });
}

TEST(CrossEntropy, NanReachesTheLoss) {
  const Tensor hidden = Tensor::from(std::vector<float>{NAN, 1}, {1, 2}), weight = random_tensor({40, 2}, 1);
  float nll = 0;
  nn::linear_cross_entropy(hidden, weight, Tensor::from(std::vector<int32_t>{1}, {1}), {&nll, 1});
  EXPECT_TRUE(std::isnan(nll));
}

TEST(CrossEntropy, GradientsOfTheScaledSum) {
  test::for_each_isa([] {
    const int64_t rows = 8, vocab = 21, d = 5;
    const float scale = 0.25f;
    const Tensor hidden = random_tensor({rows, d}, 1), weight = random_tensor({vocab, d}, 2);
    const Tensor targets = targets_of(rows, vocab);
    Tensor dhidden({rows, d}), dweight({vocab, d});
    dhidden.fill(99);
    dweight.fill(1);
    std::vector<float> nll(static_cast<size_t>(rows)), alone(nll.size());
    nn::linear_cross_entropy_with_gradients(hidden, weight, targets, scale, nll, dhidden, dweight);
    nn::linear_cross_entropy(hidden, weight, targets, alone);
    EXPECT_EQ(nll, alone);
    const auto loss = [&](const auto& x, const auto& w) {
      double sum = 0;
      for (const double value :
           test::cross_entropy_reference(matmul_reference(x, false, w, true, rows, vocab, d), targets.to_ints())) {
        sum += scale * value;
      }
      return sum;
    };
    const auto x = doubles(hidden), w = doubles(weight);
    auto expected = test::numerical_gradient([&](const auto& v) { return loss(x, v); }, w);
    for (double& value : expected) value += 1;
    EXPECT_TRUE(max_abs_diff(dweight, expected) <= 2e-6);
    EXPECT_TRUE(max_abs_diff(dhidden, test::numerical_gradient([&](const auto& v) { return loss(v, w); }, x)) <= 2e-6);
  });
}

TEST(CrossEntropy, GradientsAcrossChunksMatchTheFormula) {
  const int64_t vocab = 33, d = 8, rows = 2 * nn::cross_entropy_chunk_rows(vocab) + 100;  // three chunks
  const Tensor hidden = random_tensor({rows, d}, 1), weight = random_tensor({vocab, d}, 2);
  const Tensor targets = targets_of(rows, vocab);
  auto dlogits = matmul_reference(doubles(hidden), false, doubles(weight), true, rows, vocab, d);
  const auto ids = targets.to_ints();
  for (int64_t row = 0; row < rows; ++row) {
    double* logits = dlogits.data() + row * vocab;
    double sum = 0;
    for (int64_t i = 0; i < vocab; ++i) sum += std::exp(logits[i]);
    const int32_t target = ids[static_cast<size_t>(row)];
    for (int64_t i = 0; i < vocab; ++i) logits[i] = target < 0 ? 0 : std::exp(logits[i]) / sum - (i == target);
  }
  test::expect_same_bits_at_any_thread_count([&] {
    std::vector<float> nll(static_cast<size_t>(rows));
    Tensor dhidden({rows, d}), dweight({vocab, d});
    nn::linear_cross_entropy_with_gradients(hidden, weight, targets, 1, nll, dhidden, dweight);
    EXPECT_TRUE(test::relative_diff(doubles(dhidden),
                                    matmul_reference(dlogits, false, doubles(weight), false, rows, d, vocab)) <= 2e-6);
    EXPECT_TRUE(test::relative_diff(doubles(dweight),
                                    matmul_reference(dlogits, true, doubles(hidden), false, vocab, d, rows)) <= 2e-6);
    return std::vector<Tensor>{dhidden, dweight, Tensor::from(nll, {rows})};
  });
}

TEST(CrossEntropy, Bfloat16StatesWithFloat32LogitsAndGradients) {
  const int64_t rows = 50, vocab = 70, d = 16;
  const Tensor hidden = random_tensor({rows, d}, 1, 1, DType::bfloat16);
  const Tensor weight = random_tensor({vocab, d}, 2, 1, DType::bfloat16);
  const Tensor targets = targets_of(rows, vocab);
  std::vector<float> nll(static_cast<size_t>(rows)), expected(nll.size());
  Tensor dhidden({rows, d}, DType::bfloat16), dweight({vocab, d}), dhidden_wide({rows, d}), dweight_wide({vocab, d});
  nn::linear_cross_entropy_with_gradients(hidden, weight, targets, 1, nll, dhidden, dweight);
  nn::linear_cross_entropy_with_gradients(hidden.to(DType::float32), weight.to(DType::float32), targets, 1, expected,
                                          dhidden_wide, dweight_wide);
  EXPECT_TRUE(max_abs_diff(nll, expected) <= 4e-6);
  EXPECT_TRUE(test::relative_diff(doubles(dhidden), doubles(dhidden_wide)) <= 0x1p-7);
  EXPECT_TRUE(test::relative_diff(doubles(dweight), doubles(dweight_wide)) <= 0x1p-8);
}

TEST(CrossEntropy, NeverHoldsAllLogits) {
  const int64_t rows = 8192, vocab = 4096, d = 4;
  const Tensor hidden = random_tensor({rows, d}, 1, 0.1f), weight = random_tensor({vocab, d}, 2, 0.1f);
  const Tensor targets = random_ids({rows}, 3, vocab);
  std::vector<float> nll(static_cast<size_t>(rows));
  const int64_t before = tensor_bytes();
  reset_peak_tensor_bytes();
  nn::linear_cross_entropy(hidden, weight, targets, nll);
  EXPECT_LT(peak_tensor_bytes() - before, int64_t{4} * rows * vocab / 4);
}

TEST(CrossEntropy, ErrorsNameTheArgument) {
  const Tensor hidden({2, 3}), weight({5, 3});
  std::vector<float> nll(2);
  for (const int32_t bad : {-2, 5}) {
    const Tensor targets = Tensor::from(std::vector<int32_t>{0, bad}, {2});
    EXPECT_EQ(test::message_of([&] { nn::linear_cross_entropy(hidden, weight, targets, nll); }),
              "[linear_cross_entropy] target " + std::to_string(bad) + " at row 1, expected -1 to 4");
  }
  EXPECT_THROW(nn::linear_cross_entropy(hidden, Tensor({5, 4}), Tensor({2}, DType::int32), nll), Error);
  nll.resize(3);
  EXPECT_THROW(nn::linear_cross_entropy(hidden, weight, Tensor({2}, DType::int32), nll), Error);
}

}  // namespace
}  // namespace alibi::nn
