#include <gtest/gtest.h>

#include <cmath>
#include <complex>
#include <vector>

#include "alibi/error.h"
#include "nn/positions.h"
#include "testing.h"

namespace alibi::nn {
namespace {

using test::doubles;
using test::random_tensor;

/// The paper's form: pairs as complex numbers, multiplied by exp(i * position * theta^(-2i / head_dim)).
std::vector<double> rotary_reference(const Tensor& x, int64_t offset, double theta) {
  auto values = doubles(x);
  const auto head_dim = static_cast<size_t>(x.size(3)), half = head_dim / 2;
  for (size_t begin = 0; begin < values.size(); begin += head_dim) {
    const auto row = begin / head_dim / static_cast<size_t>(x.size(2)) % static_cast<size_t>(x.size(1));
    const double position = static_cast<double>(offset) + static_cast<double>(row);
    for (size_t i = 0; i < half; ++i) {
      const double angle = position * std::pow(theta, -2.0 * static_cast<double>(i) / static_cast<double>(head_dim));
      const auto turned = std::complex<double>(values[begin + i], values[begin + half + i]) * std::polar(1.0, angle);
      values[begin + i] = turned.real();
      values[begin + half + i] = turned.imag();
    }
  }
  return values;
}

TEST(Rotary, MatchesComplexRotationAtAnyPosition) {
  test::for_each_isa([] {
    for (const int64_t head_dim : {2, 6, 32, 64, 80}) {
      for (const int64_t offset : {int64_t{0}, int64_t{1}, int64_t{999000}}) {
        const Tensor x = random_tensor({2, 131, 3, head_dim}, 1);
        Tensor y(x.shape());
        nn::rotary(x, offset, rotary_frequencies(head_dim, 10000), y);
        EXPECT_TRUE(test::max_abs_diff(y, rotary_reference(x, offset, 10000)) <= 1e-6) << head_dim << " " << offset;
      }
    }
  });
}

// With a scale of 0.5, position 2 * i has the angle of position i.
TEST(Rotary, ScaleMultipliesThePositions) {
  test::for_each_isa([] {
    const Frequencies half = rotary_frequencies(10, 10000, 0.5);
    const Tensor x = random_tensor({1, 1, 3, 10}, 1);
    Tensor scaled(x.shape()), plain(x.shape());
    for (const int64_t position : {1, 70, 5000}) {
      nn::rotary(x, 2 * position, half, scaled);
      nn::rotary(x, position, rotary_frequencies(10, 10000), plain);
      EXPECT_TRUE(test::max_abs_diff(scaled, plain) <= 1e-6) << position;
      EXPECT_TRUE(test::max_abs_diff(scaled, rotary_reference(x, position, 10000)) <= 1e-6) << position;
    }
    // The angles of later rows are computed from those of the row before.
    const Tensor rows = random_tensor({2, 131, 3, 10}, 2);
    Tensor turned(rows.shape()), one({2, 1, 3, 10});
    nn::rotary(rows, 6, half, turned);
    for (const int64_t row : {1, 63, 64, 130}) {
      const Tensor at = rows.slice(1, row, row + 1).clone();
      nn::rotary(at, 6 + row, half, one);
      EXPECT_TRUE(test::max_abs_diff(turned.slice(1, row, row + 1).clone(), one) <= 1e-6) << row;
    }
  });
}

TEST(Rotary, BackwardIsTheTranspose) {
  test::for_each_isa([] {
    const Tensor x = random_tensor({1, 70, 2, 10}, 1), dy = random_tensor({1, 70, 2, 10}, 2);
    Tensor dx(x.shape()), back(x.shape()), y(x.shape());
    nn::rotary_backward(dy, 5, 10000, dx);
    // <rotary(x), dy> = <x, rotary_backward(dy)> for every x
    EXPECT_NEAR(test::dot(rotary_reference(x, 5, 10000), doubles(dy)), test::dot(doubles(x), doubles(dx)), 1e-4);
    nn::rotary(x, 5, rotary_frequencies(10, 10000), y);
    nn::rotary_backward(y, 5, 10000, back);
    EXPECT_TRUE(test::max_abs_diff(back, x) <= 1e-6);
  });
}

TEST(Rotary, StridedInPlaceAndThreads) {
  const Tensor packed = random_tensor({2, 150, 3, 5, 16}, 1);  // q, k, v of one projection side by side
  test::expect_same_bits_at_any_thread_count([&] {
    Tensor buffer = packed.clone();
    Tensor q = Tensor::view(buffer.raw(), {2, 150, 5, 16}, DType::float32, {150 * 3 * 80, 3 * 80, 16, 1});
    const Tensor contiguous = q.clone();
    Tensor expected(q.shape());
    nn::rotary(contiguous, 7, rotary_frequencies(16, 500), expected);
    nn::rotary(q, 7, rotary_frequencies(16, 500), q);
    EXPECT_TRUE(test::same_bits(q, expected));
    q.copy_from(contiguous);
    EXPECT_TRUE(test::same_bits(buffer, packed));  // nothing outside the view was written
    return std::vector<Tensor>{expected};
  });
}

TEST(Rotary, ScoresDependOnTheDistanceAlone) {
  const Tensor q = random_tensor({1, 1, 1, 64}, 1), k = random_tensor({1, 1, 1, 64}, 2);
  const auto score = [&](int64_t i, int64_t j) {
    Tensor a(q.shape()), b(k.shape());
    nn::rotary(q, i, rotary_frequencies(64, 10000), a);
    nn::rotary(k, j, rotary_frequencies(64, 10000), b);
    return test::dot(doubles(a), doubles(b));
  };
  EXPECT_NEAR(score(10, 3), score(1000007, 1000000), 1e-5);
}

TEST(Rotary, ErrorsNameTheArgument) {
  Tensor y({1, 2, 3, 5});
  const Frequencies two = rotary_frequencies(4, 10000);
  EXPECT_THROW(nn::rotary(Tensor({1, 2, 3, 5}), 0, two, y), Error);
  EXPECT_THROW(nn::rotary(Tensor({1, 2, 3, 4}), 0, two, y), Error);
  EXPECT_THROW(nn::rotary(Tensor({2, 3, 4}), 0, two, y), Error);
}

}  // namespace
}  // namespace alibi::nn
