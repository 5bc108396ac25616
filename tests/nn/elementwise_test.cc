#include "nn/elementwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "alibi/error.h"
#include "testing.h"

namespace alibi::nn {
namespace {

using test::random_tensor;
using test::same_bits;

TEST(Elementwise, Add) {
  test::for_each_isa([] {
    for (const int64_t n : {1, 15, 16, 17, 40000}) {
      const Tensor a = random_tensor({n}, 1), b = random_tensor({n}, 2);
      const auto x = a.to_floats(), y = b.to_floats();
      std::vector<float> sums;
      for (size_t i = 0; i < x.size(); ++i) sums.push_back(x[i] + y[i]);
      Tensor result({n}), in_place = a.clone();
      nn::add(a, b, result);
      nn::add(in_place, b, in_place);
      EXPECT_EQ(result.to_floats(), sums);
      EXPECT_EQ(in_place.to_floats(), sums);
    }
  });
}

TEST(Elementwise, Bfloat16RoundsToNearestAndKeepsNan) {
  test::for_each_isa([] {
    const float values[] = {1.0f,     1.00390625f, 1.01171875f, -0.0f, 1e-40f,
                            3.39e38f, INFINITY,    -INFINITY,   NAN,   std::numeric_limits<float>::denorm_min()};
    for (const float value : values) {
      // x + 0 and x + tiny go through the vector rounding; the reference is the scalar constructor.
      Tensor x({19}), zero({19}), sum({19}, DType::bfloat16);
      x.fill(value);
      Tensor a = x.to(DType::bfloat16), b({19}, DType::bfloat16);
      b.fill(0.0078f);
      nn::add(a, b, sum);
      const float expected = static_cast<float>(bfloat16(static_cast<float>(bfloat16(value)) + b.to_floats()[0]));
      for (const float found : sum.to_floats()) {
        EXPECT_TRUE(found == expected || (std::isnan(found) && std::isnan(expected))) << value << " " << found;
      }
    }
  });
}

TEST(Dropout, TheMaskIsTheScalarGenerators) {
  test::for_each_isa([] {
    for (const int64_t n : {1, 3, 63, 64, 65, 16384 + 37}) {
      for (const float p : {0.0f, 0.1f, 0.5f, 0.999f}) {
        const core::Random random(77, 0x123456789abcdefull);
        const Tensor x = random_tensor({n}, 1);
        Tensor y({n}), in_place = x.clone();
        nn::dropout(x, p, random, y);
        const auto before = x.to_floats(), found = y.to_floats();
        for (size_t i = 0; i < found.size(); ++i) {
          const float expected = random.uniform(i) < p ? 0 : before[i] * (1 / (1 - p));
          ASSERT_EQ(found[i], expected) << "element " << i << " of " << n << ", p " << p;
        }
        nn::dropout(in_place, p, random, in_place);
        EXPECT_TRUE(same_bits(in_place, y));
        Tensor dx({n});
        nn::dropout_backward(x, p, random, dx);  // linear: the backward pass is the same map
        EXPECT_TRUE(same_bits(dx, y));
      }
    }
  });
}

TEST(Dropout, DropsTheAskedShareAndKeepsTheMean) {
  const int64_t n = 200000;
  Tensor x({n}), y({n});
  x.fill(1);
  nn::dropout(x, 0.3f, core::Random(5), y);
  double sum = 0, dropped = 0;
  for (const float value : y.to_floats()) {
    sum += value;
    dropped += value == 0;
  }
  EXPECT_NEAR(dropped / n, 0.3, 0.005);
  EXPECT_NEAR(sum / n, 1, 0.01);
}

TEST(Dropout, ADroppedInfinityIsZero) {
  Tensor x({1000}), y({1000});
  x.fill(INFINITY);
  nn::dropout(x, 0.5f, core::Random(5), y);
  for (const float value : y.to_floats()) EXPECT_TRUE(value == 0 || std::isinf(value));
}

TEST(Elementwise, SameBitsAtAnyThreadCount) {
  const Tensor a = random_tensor({70000}, 1), b = random_tensor({70000}, 2);
  test::expect_same_bits_at_any_thread_count([&] {
    Tensor y({70000}), z({70000});
    nn::add(a, b, y);
    nn::dropout(a, 0.2f, core::Random(3), z);
    return std::vector<Tensor>{y, z};
  });
}

TEST(Elementwise, ErrorsNameTheArgument) {
  Tensor y({3});
  EXPECT_THROW(nn::add(Tensor({3}), Tensor({4}), y), Error);
  EXPECT_THROW(nn::add(Tensor({3}), Tensor({6}).reshape({3, 2}).slice(1, 0, 1).reshape({3}), y), Error);
  for (const float p : {-0.1f, 1.0f, std::nanf("")}) EXPECT_THROW(nn::dropout(y, p, core::Random(0), y), Error);
}

}  // namespace
}  // namespace alibi::nn
