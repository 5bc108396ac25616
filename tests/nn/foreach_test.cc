#include "nn/foreach.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "alibi/error.h"
#include "testing.h"

namespace alibi::nn {
namespace {

using test::random_tensor;

/// Some smaller than a task, one of several, and one without elements.
nn::Tensors mixed_tensors(uint64_t seed) {
  return {random_tensor({3, 5}, seed), random_tensor({70001}, seed + 1), Tensor({0, 4}), random_tensor({1}, seed + 2)};
}

nn::Tensors clones_of(const nn::Tensors& tensors) {
  nn::Tensors result;
  for (const Tensor& tensor : tensors) result.push_back(tensor.clone());
  return result;
}

void expect_same_tensors(const nn::Tensors& a, const nn::Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(test::same_bits(a[i], b[i])) << i;
}

TEST(Many, FillAndConvertReachEveryElement) {
  const nn::Tensors from = mixed_tensors(1);
  nn::Tensors rounded, expected, back = mixed_tensors(9);
  for (const Tensor& tensor : from) {
    rounded.push_back(Tensor::empty(tensor.shape(), DType::bfloat16));
    expected.push_back(tensor.to(DType::bfloat16));
  }
  nn::convert(from, rounded);
  expect_same_tensors(rounded, expected);
  nn::convert(rounded, back);
  for (size_t i = 0; i < back.size(); ++i) EXPECT_TRUE(test::same_bits(back[i], rounded[i].to(DType::float32))) << i;
  nn::fill(back, 0.5f);
  for (const Tensor& tensor : back) {
    for (const float value : tensor.to_floats()) ASSERT_EQ(value, 0.5f);
  }
}

TEST(Many, SumOfSquaresIsThatOfAllAtAnyThreadCount) {
  const nn::Tensors tensors = mixed_tensors(1);
  double expected = 0;
  for (const Tensor& tensor : tensors) {
    for (const float value : tensor.to_floats()) expected += static_cast<double>(value) * static_cast<double>(value);
  }
  const double found = nn::sum_of_squares(tensors);
  EXPECT_TRUE(std::abs(found - expected) <= 1e-12 * expected);
  const test::RuntimeGuard guard;
  for (const int count : {1, 3}) {
    set_threads(count);
    EXPECT_EQ(nn::sum_of_squares(tensors), found);
  }
  tensors[3].data<float>()[0] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(nn::sum_of_squares(tensors)));
}

TEST(Many, SumOfSquaresIsFloat64WithEveryInstructionSet) {
  test::for_each_isa([] {
    for (const int64_t n : {0, 1, 7, 17, 100003}) {
      const Tensor x = random_tensor({n}, 1, 1000);
      double expected = 0;
      for (const float value : x.to_floats()) expected += static_cast<double>(value) * static_cast<double>(value);
      EXPECT_TRUE(std::abs(nn::sum_of_squares({x}) - expected) <= 1e-12 * expected);
    }
  });
  Tensor large({40});
  large.fill(1e30f);
  EXPECT_TRUE(std::abs(nn::sum_of_squares({large}) - 40e60) <= 1e55);
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
      nn::adamw({w}, {g}, {m}, {v}, {true}, options, step, 0.5f);
      ASSERT_TRUE(test::max_abs_diff(w, weight) <= 2e-6) << "step " << step;
    }
    EXPECT_TRUE(test::max_abs_diff(m, mean) <= 1e-6);
    EXPECT_TRUE(test::max_abs_diff(v, variance) <= 1e-6);
  });
}

TEST(AdamW, SameBitsAtAnyThreadCountAndErrors) {
  const Tensor gradient = random_tensor({100001}, 2);
  const nn::AdamW options{.learning_rate = 0.01f, .beta1 = 0.9f, .beta2 = 0.98f, .eps = 1e-6f, .weight_decay = 0.1f};
  test::expect_same_bits_at_any_thread_count([&] {
    Tensor w = random_tensor({100001}, 1), m(w.shape()), v(w.shape());
    nn::adamw({w}, {gradient}, {m}, {v}, {true}, options, 3, 1);
    return std::vector<Tensor>{w, m, v};
  });
  const nn::Tensors a = {Tensor({3})}, b = {Tensor({2})};
  EXPECT_THROW(nn::adamw(a, b, a, a, {true}, options, 1, 1), Error);
  EXPECT_THROW(nn::adamw(a, a, a, a, {true}, options, 0, 1), Error);
}

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
        nn::nag({w}, {g}, {buffer}, {true}, options, 0.5f);
        ASSERT_TRUE(test::relative_diff(test::doubles(w), weight) <= 1e-6) << "step " << step;
        previous = rate;
      }
      EXPECT_TRUE(test::relative_diff(test::doubles(buffer), b) <= 1e-5);
    }
  });
}

TEST(Nag, ARateOfZeroBeforeIsNoInfinity) {
  Tensor weight({3}), gradient({3}), buffer({3});
  for (Tensor* tensor : {&weight, &gradient, &buffer}) tensor->fill(1);
  nn::nag({weight}, {gradient}, {buffer}, {false}, {0.5f, 0, 0.5f, 0}, 1);
  EXPECT_EQ(weight.to_floats(), std::vector<float>(3, 1.0f + 0.25f - 0.75f));
  EXPECT_EQ(buffer.to_floats(), std::vector<float>(3, 0.5f - 0.5f));
}

TEST(Nag, SameBitsAtAnyThreadCountAndErrors) {
  const int64_t n = 100001;
  const Tensor gradient = random_tensor({n}, 2);
  test::expect_same_bits_at_any_thread_count([&] {
    const Tensor w = random_tensor({n}, 1), buffer = random_tensor({n}, 3);
    nn::nag({w}, {gradient}, {buffer}, {true}, {0.1f, 0.2f, 0.9f, 0.1f}, 0.3f);
    return std::vector<Tensor>{w, buffer};
  });
  const nn::Tensors a = {Tensor({3})}, b = {Tensor({2})};
  EXPECT_THROW(nn::nag(a, b, a, {true}, {}, 1), Error);
  EXPECT_THROW(nn::nag(a, a, b, {true}, {}, 1), Error);
}

TEST(Many, OptimizersDoToEachWhatTheyDoToOne) {
  const nn::Tensors gradients = mixed_tensors(20);
  const std::vector<bool> decays = {true, false, true, true};
  nn::Tensors w = mixed_tensors(1), m = mixed_tensors(30), v = mixed_tensors(40);
  for (const Tensor& tensor : v) nn::fill({tensor}, 0.5f);
  nn::Tensors one_w = clones_of(w), one_m = clones_of(m), one_v = clones_of(v), nag_w = clones_of(w),
              buffers = clones_of(m);
  nn::Tensors one_nag = clones_of(w), one_buffers = clones_of(m);
  const nn::AdamW adamw{.learning_rate = 0.01f, .beta1 = 0.9f, .beta2 = 0.98f, .eps = 1e-6f, .weight_decay = 0.1f};
  const nn::Nag nag{0.1f, 0.2f, 0.9f, 0.1f};
  nn::adamw(w, gradients, m, v, decays, adamw, 3, 0.5f);
  nn::nag(nag_w, gradients, buffers, decays, nag, 0.5f);
  for (size_t i = 0; i < w.size(); ++i) {
    nn::AdamW own = adamw;
    nn::Nag own_nag = nag;
    if (!decays[i]) own.weight_decay = own_nag.weight_decay = 0;
    nn::adamw({one_w[i]}, {gradients[i]}, {one_m[i]}, {one_v[i]}, {true}, own, 3, 0.5f);
    nn::nag({one_nag[i]}, {gradients[i]}, {one_buffers[i]}, {true}, own_nag, 0.5f);
  }
  expect_same_tensors(w, one_w);
  expect_same_tensors(m, one_m);
  expect_same_tensors(v, one_v);
  expect_same_tensors(nag_w, one_nag);
  expect_same_tensors(buffers, one_buffers);
}

TEST(Many, ArgumentsAreChecked) {
  const nn::Tensors all = mixed_tensors(1), few = {all[0]}, half = {Tensor({3, 5}, DType::bfloat16)};
  EXPECT_THROW(nn::fill(half, 0), Error);
  EXPECT_THROW(nn::convert(all, few), Error);
  EXPECT_THROW(nn::convert(few, {Tensor({5, 3})}), Error);
  EXPECT_THROW(nn::sum_of_squares(half), Error);
  EXPECT_THROW(nn::adamw(all, few, all, all, {true, true, true, true}, {}, 1, 1), Error);
  EXPECT_THROW(nn::adamw(few, few, few, few, {}, {}, 1, 1), Error);
  EXPECT_THROW(nn::nag(few, few, {Tensor({14})}, {true}, {}, 1), Error);
}

}  // namespace
}  // namespace alibi::nn
