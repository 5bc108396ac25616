#include "nn/short_conv.h"

#include <gtest/gtest.h>

#include <vector>

#include "testing.h"

namespace alibi::nn {
namespace {

using test::doubles;
using test::random_tensor;

/// x + conv(x) of one sequence that follows `before`, in float64.
std::vector<double> conv_reference(const std::vector<double>& weight, const std::vector<double>& before,
                                   const std::vector<double>& x, size_t width) {
  std::vector<double> all = before;
  all.insert(all.end(), x.begin(), x.end());
  std::vector<double> y = x;
  for (size_t i = 0; i < y.size(); ++i) {
    for (size_t j = 0; j * width < weight.size(); ++j) {
      const size_t at = before.size() + i;
      if (at >= j * width) y[i] += weight[j * width + i % width] * all[at - j * width];
    }
  }
  return y;
}

TEST(ShortConv, ValuesAndGradientsAreThoseOfFloat64) {
  test::for_each_isa([] {
    for (const int64_t width : {1, 17, 70}) {
      for (const int64_t length : {1, 3, 9}) {
        const Tensor weight = random_tensor({4, width}, 1), x = random_tensor({1, length, width}, 2),
                     dy = random_tensor({1, length, width}, 3);
        for (const int64_t known : {0, 1, 3}) {
          const Tensor before = known > 0 ? random_tensor({known, width}, 4) : Tensor();
          Tensor y = x.clone();
          add_short_conv(weight, before, y);
          const std::vector<double> expected =
              conv_reference(doubles(weight), known > 0 ? doubles(before) : std::vector<double>(), doubles(x),
                             static_cast<size_t>(width));
          EXPECT_TRUE(test::max_abs_diff(y, expected) <= 2e-6);
        }
        const auto loss = [&](const std::vector<double>& weights, const std::vector<double>& inputs) {
          return test::dot(conv_reference(weights, {}, inputs, static_cast<size_t>(width)), doubles(dy));
        };
        Tensor dx = dy.clone(), again = dy.clone(), dweight({4, width});
        add_short_conv_backward(weight, x, dx, dweight);
        add_short_conv_backward(weight, x, again, dweight);  // adds
        std::vector<double> of_weight =
            test::numerical_gradient([&](const auto& w) { return loss(w, doubles(x)); }, doubles(weight));
        for (double& value : of_weight) value *= 2;
        EXPECT_TRUE(test::max_abs_diff(dweight, of_weight) <= 1e-5);
        EXPECT_TRUE(test::max_abs_diff(dx, test::numerical_gradient(
                                               [&](const auto& v) { return loss(doubles(weight), v); }, doubles(x))) <=
                    1e-5);
      }
    }
  });
}

TEST(ShortConv, BatchesPartsAndThreadsGiveTheSameBits) {
  for (const DType type : {DType::float32, DType::bfloat16}) {
    const Shape shape = {3, 50, 200};
    const Tensor weight = random_tensor({4, 200}, 1), x = random_tensor(shape, 2, 1, type),
                 dy = random_tensor(shape, 3, 1, type);
    Tensor whole = x.clone();
    test::expect_same_bits_at_any_thread_count([&] {
      whole = x.clone();
      add_short_conv(weight, {}, whole);
      Tensor dx = dy.clone(), dweight({4, 200});
      add_short_conv_backward(weight, x, dx, dweight);
      return std::vector<Tensor>{whole, dx, dweight};
    });
    for (int64_t b = 0; b < 3; ++b) {
      for (const int64_t cut : {1, 2, 30}) {
        Tensor first = x.slice(0, b, b + 1).slice(1, 0, cut).clone(),
               rest = x.slice(0, b, b + 1).slice(1, cut, 50).clone();
        const Tensor before = first.reshape({cut, 200}).clone();
        add_short_conv(weight, {}, first);
        add_short_conv(weight, before, rest);
        EXPECT_TRUE(test::same_bits(first, whole.slice(0, b, b + 1).slice(1, 0, cut).clone()));
        EXPECT_TRUE(test::same_bits(rest, whole.slice(0, b, b + 1).slice(1, cut, 50).clone()));
      }
    }
  }
}

TEST(ShortConv, ErrorsNameTheArgument) {
  Tensor x({1, 2, 8});
  EXPECT_EQ(test::message_of([&] {
              add_short_conv(Tensor({4, 7}), {}, x);
            }),
            "[add_short_conv] weight is float32 [4, 7], expected float32 [width, 8]");
  EXPECT_EQ(test::message_of([&] {
              add_short_conv(Tensor({4, 8}), Tensor({3, 7}), x);
            }),
            "[add_short_conv] the rows before are float32 [3, 7], expected float32 [rows, 8] before one sequence");
}

}  // namespace
}  // namespace alibi::nn
