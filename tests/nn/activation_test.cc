#include "nn/activation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "nn/reference.h"
#include "testing.h"

namespace alibi::nn {
namespace {

using test::activation_reference;
using test::doubles;
using test::max_abs_diff;
using test::random_tensor;

constexpr Activation kinds[] = {Activation::gelu,   Activation::gelu_tanh, Activation::relu, Activation::relu2,
                                Activation::swiglu, Activation::geglu,     Activation::reglu};

int64_t width(Activation kind, int64_t features) { return nn::is_gated(kind) ? 2 * features : features; }

TEST(Activation, MatchesFloat64OnAFineGrid) {
  test::for_each_isa([] {
    // From -20 to 20: the middle, the switch to the tails, and the tails.
    const int64_t n = 20001;
    Tensor x({1, n}), gated({1, 2 * n});
    for (int64_t i = 0; i < n; ++i) {
      x.data<float>()[i] = gated.data<float>()[i] = static_cast<float>(i - n / 2) * 0.002f;
      gated.data<float>()[n + i] = 1;
    }
    for (const Activation kind : kinds) {
      SCOPED_TRACE(static_cast<int>(kind));
      const Tensor& input = nn::is_gated(kind) ? gated : x;
      Tensor y({1, n});
      nn::activate(kind, input, y);
      const auto expected = activation_reference(kind, doubles(input), n);
      const auto found = doubles(y);
      double worst = 0;
      for (size_t i = 0; i < found.size(); ++i) {
        const double error = std::abs(found[i] - expected[i]) / std::max(1.0, std::abs(expected[i]));
        ASSERT_FALSE(std::isnan(error));
        worst = std::max(worst, error);
      }
      EXPECT_TRUE(worst <= 8e-7) << worst;
    }
  });
}

TEST(Activation, GradientsOfRandomCotangents) {
  test::for_each_isa([] {
    for (const Activation kind : kinds) {
      for (const int64_t n : {1, 17, 40}) {
        SCOPED_TRACE(static_cast<int>(kind));
        const Tensor x = random_tensor({3, width(kind, n)}, 5, 2), dy = random_tensor({3, n}, 6);
        Tensor dx({3, width(kind, n)});
        dx.fill(99);
        nn::activate_backward(kind, dy, x, dx);
        const auto expected = test::numerical_gradient(
            [&](const auto& v) { return test::dot(activation_reference(kind, v, n), doubles(dy)); }, doubles(x));
        EXPECT_TRUE(max_abs_diff(dx, expected) <= 5e-6);
      }
    }
  });
}

TEST(Activation, ManyRowsAreThoseOfOneEach) {
  // Enough for several tasks.
  constexpr int64_t rows = 700, n = 130;
  for (const Activation kind : kinds) {
    SCOPED_TRACE(name_of(kind));
    const Tensor x = random_tensor({rows, width(kind, n)}, 1), dy = random_tensor({rows, n}, 2);
    Tensor y({rows, n}), dx(x.shape()), again({rows, n});
    nn::activate(kind, x, y);
    nn::activate_backward(kind, dy, x, dx, &again);
    for (const int64_t row : {int64_t{0}, int64_t{1}, rows / 2, rows - 1}) {
      Tensor one({1, n}), done({1, width(kind, n)});
      nn::activate(kind, x.slice(0, row, row + 1), one);
      nn::activate_backward(kind, dy.slice(0, row, row + 1), x.slice(0, row, row + 1), done);
      EXPECT_TRUE(test::same_bits(y.slice(0, row, row + 1), one));
      EXPECT_TRUE(test::same_bits(again.slice(0, row, row + 1), one));
      EXPECT_TRUE(test::same_bits(dx.slice(0, row, row + 1), done));
    }
  }
}

TEST(Activation, BackwardGivesTheValueAgain) {
  test::for_each_isa([] {
    for (const DType type : {DType::float32, DType::bfloat16}) {
      for (const Activation kind : kinds) {
        SCOPED_TRACE(name_of(kind));
        const bool gated = nn::is_gated(kind);
        const Tensor x = test::random_tensor({5, gated ? 46 : 23}, 1, 2, type);
        const Tensor dy = test::random_tensor({5, 23}, 2, 1, type);
        Tensor y({5, 23}, type), dx(x.shape(), type);
        nn::activate(kind, x, y);
        nn::activate_backward(kind, dy, x, dx);
        // In place: the two results take the places of the two inputs.
        Tensor x_then = x.clone(), dy_then = dy.clone();
        Tensor& dx_again = gated ? x_then : dy_then;
        Tensor& y_again = gated ? dy_then : x_then;
        nn::activate_backward(kind, dy_then, x_then, dx_again, &y_again);
        EXPECT_TRUE(test::same_bits(dx_again, dx));
        EXPECT_TRUE(test::same_bits(y_again, y));
      }
    }
  });
}

TEST(Activation, FarTailsAreExactAndNanShows) {
  test::for_each_isa([] {
    const float nan = std::numeric_limits<float>::quiet_NaN();
    for (const Activation kind : {Activation::gelu, Activation::gelu_tanh, Activation::relu}) {
      const Tensor x = Tensor::from(std::vector<float>{-1e4f, -50, 0, 50, 1e4f, nan}, {1, 6});
      Tensor y({1, 6}), dx({1, 6});
      nn::activate(kind, x, y);
      const auto values = y.to_floats();
      EXPECT_TRUE(std::abs(values[0]) < 1e-20f && std::abs(values[1]) < 1e-20f);
      EXPECT_EQ(values[2], 0);
      EXPECT_EQ(values[3], 50);
      EXPECT_EQ(values[4], 1e4f);
      EXPECT_TRUE(std::isnan(values[5]));
      Tensor dy({1, 6});
      dy.fill(1);
      nn::activate_backward(kind, dy, x, dx);
      const auto slopes = dx.to_floats();
      EXPECT_TRUE(std::abs(slopes[0]) < 1e-20f && std::abs(slopes[1]) < 1e-20f);
      EXPECT_EQ(slopes[3], 1);
      EXPECT_EQ(slopes[4], 1);
    }
  });
}

TEST(Activation, InPlaceAndThreadsGiveTheSameBits) {
  for (const Activation kind : kinds) {
    const int64_t rows = 500, n = 70;
    const Tensor x = random_tensor({rows, width(kind, n)}, 1), dy = random_tensor({rows, n}, 2);
    test::expect_same_bits_at_any_thread_count([&] {
      Tensor y({rows, n}), dx({rows, width(kind, n)});
      nn::activate(kind, x, y);
      nn::activate_backward(kind, dy, x, dx);
      if (!nn::is_gated(kind)) {
        Tensor in_place = x.clone(), gradient = dy.clone();
        nn::activate(kind, in_place, in_place);
        nn::activate_backward(kind, gradient, x, gradient);
        EXPECT_TRUE(test::same_bits(in_place, y) && test::same_bits(gradient, dx));
      }
      return std::vector<Tensor>{y, dx};
    });
  }
}

TEST(Activation, Bfloat16RoundsTheFloat32Result) {
  test::for_each_isa([] {
    for (const Activation kind : kinds) {
      const int64_t n = 33;
      const Tensor x = random_tensor({4, width(kind, n)}, 1, 1, DType::bfloat16);
      const Tensor dy = random_tensor({4, n}, 2, 1, DType::bfloat16);
      Tensor y({4, n}, DType::bfloat16), dx(x.shape(), DType::bfloat16), wide_y({4, n}), wide_dx(x.shape());
      nn::activate(kind, x, y);
      nn::activate(kind, x.to(DType::float32), wide_y);
      EXPECT_TRUE(test::same_bits(y, wide_y.to(DType::bfloat16)));
      nn::activate_backward(kind, dy, x, dx);
      nn::activate_backward(kind, dy.to(DType::float32), x.to(DType::float32), wide_dx);
      EXPECT_TRUE(test::same_bits(dx, wide_dx.to(DType::bfloat16)));
    }
  });
}

std::vector<double> gate_reference(const std::vector<double>& gate_and_x) {
  const size_t n = gate_and_x.size() / 2;
  std::vector<double> y(n);
  for (size_t i = 0; i < n; ++i) y[i] = gate_and_x[n + i] / (1 + std::exp(-gate_and_x[i]));
  return y;
}

TEST(Gate, ValuesAndGradientsAreThoseOfFloat64) {
  test::for_each_isa([] {
    for (const int64_t n : {1, 17, 40}) {
      const Tensor gate = random_tensor({3, n}, 5, 4), x = random_tensor({3, n}, 6), dy = random_tensor({3, n}, 7);
      std::vector<double> both = doubles(gate);
      for (const double value : doubles(x)) both.push_back(value);
      const std::vector<double> expected = gate_reference(both);
      Tensor y({3, n}), dx({3, n}), dgate({3, n}), again({3, n});
      nn::apply_gate(gate, x, y);
      EXPECT_TRUE(max_abs_diff(y, expected) <= 1e-6);
      nn::apply_gate_backward(dy, gate, x, dx, dgate, again);
      EXPECT_TRUE(test::same_bits(again, y));
      std::vector<double> gradients =
          test::numerical_gradient([&](const auto& v) { return test::dot(gate_reference(v), doubles(dy)); }, both);
      const std::vector<double> of_x(gradients.begin() + 3 * n, gradients.end());
      gradients.resize(static_cast<size_t>(3 * n));
      EXPECT_TRUE(max_abs_diff(dgate, gradients) <= 2e-6);
      EXPECT_TRUE(max_abs_diff(dx, of_x) <= 2e-6);
    }
  });
}

TEST(Gate, InPlaceThreadsAndBfloat16GiveTheSameNumbers) {
  for (const DType type : {DType::float32, DType::bfloat16}) {
    const Shape shape = {500, 70};
    const auto random = [&](uint64_t seed) { return random_tensor(shape, seed, 1, type); };
    const Tensor gate = random(1), x = random(2), dy = random(3);
    test::expect_same_bits_at_any_thread_count([&] {
      Tensor y(shape, type), dx(shape, type), dgate(shape, type), again(shape, type);
      nn::apply_gate(gate, x, y);
      nn::apply_gate_backward(dy, gate, x, dx, dgate, again);
      Tensor in_place = x.clone(), gradient = dy.clone(), of_gate = gate.clone();
      nn::apply_gate(gate, in_place, in_place);
      nn::apply_gate_backward(gradient, of_gate, x, gradient, of_gate, again);
      EXPECT_TRUE(test::same_bits(in_place, y) && test::same_bits(gradient, dx) && test::same_bits(of_gate, dgate));
      return std::vector<Tensor>{y, dx, dgate};
    });
    Tensor y(shape, type), wide(shape);
    nn::apply_gate(gate, x, y);
    nn::apply_gate(gate.to(DType::float32), x.to(DType::float32), wide);
    EXPECT_TRUE(test::same_bits(y, wide.to(type)));
  }
}

TEST(Gate, ErrorsNameTheArgument) {
  Tensor y({2, 8});
  EXPECT_EQ(test::message_of([&] {
              nn::apply_gate(Tensor({2, 7}), y, y);
            }),
            "[apply_gate] gate is float32 [2, 7], expected float32 with 2 rows of 8");
}

TEST(Activation, ErrorsNameTheArgument) {
  Tensor y({2, 8});
  EXPECT_EQ(test::message_of([&] {
              nn::activate(Activation::swiglu, Tensor({2, 8}), y);
            }),
            "[activate] x is float32 [2, 8], expected float32 with 2 rows of 16");
}

}  // namespace
}  // namespace alibi::nn
