#include "nn/scalable_softmax.h"

#include <gtest/gtest.h>

#include <cmath>

#include "alibi/error.h"
#include "testing.h"

namespace alibi::nn {
namespace {

using test::random_tensor;

TEST(ScalableSoftmax, ValuesAndGradientsAreThoseOfFloat64) {
  for (const int64_t window : {0, 5}) {
    // Queries are a part of wider rows.
    const Tensor rows = random_tensor({2, 70, 5, 6}, 1), drows = random_tensor({2, 70, 5, 6}, 2);
    Tensor y = rows.clone().slice(2, 0, 3), dx = drows.clone().slice(2, 0, 3), ds({3});
    ds.fill(0.5f);
    const ScoreScale scale{.of_heads = {0.5f, -2, 1}, .position = 3, .window = window};
    scale_queries(y, scale);
    scale_queries_backward(y, scale, dx, ds);
    std::vector<double> expected_ds(3, 0.5);
    for (int64_t b = 0; b < 2; ++b) {
      for (int64_t row = 0; row < 70; ++row) {
        const double log_keys = std::log(static_cast<double>(window > 0 ? std::min(row + 4, window) : row + 4));
        for (int64_t head = 0; head < 3; ++head) {
          const double factor = static_cast<double>(scale.of_heads[static_cast<size_t>(head)]) * log_keys;
          for (int64_t d = 0; d < 6; ++d) {
            const auto at = [&](const Tensor& tensor) {
              return static_cast<double>(*(tensor.data<float>() + b * tensor.stride(0) + row * tensor.stride(1) +
                                           head * tensor.stride(2) + d));
            };
            ASSERT_NEAR(at(y), factor * at(rows), 1e-5);
            ASSERT_NEAR(at(dx), factor * at(drows), 1e-5);
            expected_ds[static_cast<size_t>(head)] += log_keys * at(rows) * at(drows);
          }
        }
      }
    }
    for (size_t head = 0; head < 3; ++head) EXPECT_NEAR(ds.data<float>()[head], expected_ds[head], 1e-3) << head;
  }
}

TEST(ScalableSoftmax, ArgumentsAreChecked) {
  Tensor q({1, 4, 2, 6}), ds({2});
  EXPECT_THROW(scale_queries(q, {.of_heads = {1}}), Error);
  EXPECT_THROW(scale_queries(q, {.of_heads = {1, 1}, .position = -1}), Error);
  Tensor dq({1, 4, 2, 5});
  EXPECT_THROW(scale_queries_backward(q, {.of_heads = {1, 1}}, dq, ds), Error);
}

}  // namespace
}  // namespace alibi::nn
