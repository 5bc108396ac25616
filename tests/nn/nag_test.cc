#include "nn/nag.h"

#include <gtest/gtest.h>

#include <vector>

#include "alibi/error.h"
#include "testing.h"

namespace alibi::nn {
namespace {

using test::random_tensor;

std::span<float> flat(const Tensor& tensor) { return {tensor.data<float>(), static_cast<size_t>(tensor.elements())}; }

TEST(Nag, FollowsTheDefinitionWithEveryInstructionSet) {
  test::for_each_isa([] {
    for (const int64_t n : {1, 15, 101}) {
      const Tensor w = random_tensor({n}, 1), buffer({n});
      auto weight = test::doubles(w);
      std::vector<double> b(weight.size());
      double previous = 0.05;
      for (int step = 0; step < 10; ++step) {
        const double rate = 0.05 - 0.004 * step, momentum = 0.99, decay = 0.1, follow = rate / previous;
        const Tensor g = random_tensor({n}, 10 + static_cast<uint64_t>(step));
        const auto gradient = test::doubles(g);
        for (size_t i = 0; i < weight.size(); ++i) {
          const double clipped = 0.5 * gradient[i];
          weight[i] =
              (1 - rate * decay) * weight[i] + momentum * momentum * follow * b[i] - (1 + momentum) * rate * clipped;
          b[i] = momentum * follow * b[i] - rate * clipped;
        }
        const nn::Nag options{static_cast<float>(rate), static_cast<float>(previous), static_cast<float>(momentum),
                              static_cast<float>(decay)};
        nn::nag(flat(w), flat(g), flat(buffer), options, 0.5f);
        ASSERT_TRUE(test::relative_diff(test::doubles(w), weight) <= 1e-6) << "step " << step;
        previous = rate;
      }
      EXPECT_TRUE(test::relative_diff(test::doubles(buffer), b) <= 1e-5);
    }
  });
}

TEST(Nag, ARateOfZeroBeforeIsNoInfinity) {
  std::vector<float> weight(3, 1.0f), gradient(3, 1.0f), buffer(3, 1.0f);
  nn::nag(weight, gradient, buffer, {0.5f, 0, 0.5f, 0}, 1);
  EXPECT_EQ(weight, std::vector<float>(3, 1.0f + 0.25f - 0.75f));
  EXPECT_EQ(buffer, std::vector<float>(3, 0.5f - 0.5f));
}

TEST(Nag, SameBitsAtAnyThreadCountAndErrors) {
  const int64_t n = 100001;
  const Tensor gradient = random_tensor({n}, 2);
  test::expect_same_bits_at_any_thread_count([&] {
    const Tensor w = random_tensor({n}, 1), buffer = random_tensor({n}, 3);
    nn::nag(flat(w), flat(gradient), flat(buffer), {0.1f, 0.2f, 0.9f, 0.1f}, 0.3f);
    return std::vector<Tensor>{w, buffer};
  });
  std::vector<float> a(3), b(2);
  EXPECT_THROW(nn::nag(a, b, a, {}, 1), Error);
  EXPECT_THROW(nn::nag(a, a, b, {}, 1), Error);
}

}  // namespace
}  // namespace alibi::nn
