#include "nn/flat.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "alibi/error.h"
#include "testing.h"

namespace alibi::nn {
namespace {

using test::random_tensor;

TEST(SumOfSquares, IsFloat64AndTheSameAtAnyThreadCount) {
  test::for_each_isa([] {
    for (const int64_t n : {0, 1, 7, 17, 100003}) {
      const Tensor x = random_tensor({n}, 1, 1000);
      double expected = 0;
      for (const float value : x.to_floats()) expected += static_cast<double>(value) * static_cast<double>(value);
      const double found = nn::sum_of_squares(x.data<float>(), n);
      EXPECT_TRUE(std::abs(found - expected) <= 1e-12 * expected);
      const test::RuntimeGuard guard;
      for (const int count : {1, 3}) {
        set_threads(count);
        EXPECT_EQ(nn::sum_of_squares(x.data<float>(), n), found);
      }
    }
  });
}

TEST(SumOfSquares, LargeValuesDoNotOverflowAndNanShows) {
  const std::vector<float> large(40, 1e30f);
  EXPECT_TRUE(std::abs(nn::sum_of_squares(large.data(), 40) - 40e60) <= 1e55);
  std::vector<float> bad(40, 1.0f);
  bad[37] = NAN;
  EXPECT_TRUE(std::isnan(nn::sum_of_squares(bad.data(), 40)));
}

TEST(AdamW, FollowsTheDefinitionOverManySteps) {
  test::for_each_isa([] {
    const int64_t n = 101;
    const nn::AdamW options{.learning_rate = 0.01f, .beta1 = 0.9f, .beta2 = 0.98f, .eps = 1e-6f, .weight_decay = 0.1f};
    Tensor w = random_tensor({n}, 1), m({n}), v({n});
    auto weight = test::doubles(w);
    std::vector<double> mean(weight.size()), variance(weight.size());
    const double beta1 = options.beta1, beta2 = options.beta2, rate = options.learning_rate;
    for (int64_t step = 1; step <= 20; ++step) {
      const Tensor g = random_tensor({n}, 100 + static_cast<uint64_t>(step), step == 7 ? 1e-4f : 1);
      const auto gradient = test::doubles(g);
      for (size_t i = 0; i < weight.size(); ++i) {
        const double clipped = 0.5 * gradient[i];
        mean[i] = beta1 * mean[i] + (1 - beta1) * clipped;
        variance[i] = beta2 * variance[i] + (1 - beta2) * clipped * clipped;
        const double unbiased = mean[i] / (1 - std::pow(beta1, step));
        const double spread = std::sqrt(variance[i] / (1 - std::pow(beta2, step)));
        weight[i] -= rate * (unbiased / (spread + double{options.eps}) + double{options.weight_decay} * weight[i]);
      }
      nn::adamw({w.data<float>(), static_cast<size_t>(n)}, {g.data<float>(), static_cast<size_t>(n)},
                {m.data<float>(), static_cast<size_t>(n)}, {v.data<float>(), static_cast<size_t>(n)}, options, step,
                0.5f);
      ASSERT_TRUE(test::max_abs_diff(w, weight) <= 2e-6) << "step " << step;
    }
    EXPECT_TRUE(test::max_abs_diff(m, mean) <= 1e-6);
    EXPECT_TRUE(test::max_abs_diff(v, variance) <= 1e-6);
  });
}

TEST(AdamW, SameBitsAtAnyThreadCountAndErrors) {
  const size_t n = 100001;
  const Tensor gradient = random_tensor({static_cast<int64_t>(n)}, 2);
  const nn::AdamW options{.learning_rate = 0.01f, .beta1 = 0.9f, .beta2 = 0.98f, .eps = 1e-6f, .weight_decay = 0.1f};
  test::expect_same_bits_at_any_thread_count([&] {
    Tensor w = random_tensor({static_cast<int64_t>(n)}, 1), m(w.shape()), v(w.shape());
    nn::adamw({w.data<float>(), n}, {gradient.data<float>(), n}, {m.data<float>(), n}, {v.data<float>(), n}, options, 3,
              1);
    return std::vector<Tensor>{w, m, v};
  });
  std::vector<float> a(3), b(2);
  EXPECT_THROW(nn::adamw(a, b, a, a, options, 1, 1), Error);
  EXPECT_THROW(nn::adamw(a, a, a, a, options, 0, 1), Error);
}

}  // namespace
}  // namespace alibi::nn
