#include "nn/foreach.h"

#include <gtest/gtest.h>

#include <limits>

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

std::span<float> elements_of(const Tensor& tensor) {
  return {tensor.data<float>(), static_cast<size_t>(tensor.elements())};
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
    nn::adamw(elements_of(one_w[i]), elements_of(gradients[i]), elements_of(one_m[i]), elements_of(one_v[i]), own, 3,
              0.5f);
    nn::nag(elements_of(one_nag[i]), elements_of(gradients[i]), elements_of(one_buffers[i]), own_nag, 0.5f);
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
