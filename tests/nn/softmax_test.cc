#include "nn/softmax.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "testing.h"

namespace alibi::nn {
namespace {

TEST(Softmax, NumeratorsMatchTheStandardLibrary) {
  test::for_each_isa([] {
    for (const double temperature : {1e-308, 0.01, 0.7, 1.0, 30.0}) {
      for (const int64_t n : {0, 1, 5, 16, 1003}) {
        std::vector<float> logits = test::random_tensor({1, n}, 3, 20).to_floats();
        for (float& logit : logits) logit = std::min(logit, 25.0f);
        if (n > 4) logits[1] = 25, logits[2] = logits[3] = -3e38f;
        std::vector<double> weights(logits.size(), -1);
        softmax_numerators(logits, 25, temperature, weights);
        for (size_t i = 0; i < logits.size(); ++i) {
          const double expected = std::exp((static_cast<double>(logits[i]) - 25) / temperature);
          EXPECT_TRUE(std::abs(weights[i] - expected) <= 4e-16 * expected + 1e-300) << weights[i] << " " << expected;
        }
        if (n > 4) {
          EXPECT_EQ(weights[1], 1);
        }
      }
    }
  });
}

TEST(Softmax, LargestIsThatOfTheStandardLibrary) {
  test::for_each_isa([] {
    EXPECT_EQ(largest({}), -HUGE_VALF);
    for (const int64_t n : {1, 5, 16, 1003}) {
      const std::vector<float> logits = test::random_tensor({1, n}, 3, 20).to_floats();
      EXPECT_EQ(largest(logits), *std::max_element(logits.begin(), logits.end()));
    }
  });
}

}  // namespace
}  // namespace alibi::nn
