#include <fmt/format.h>
#include <gtest/gtest.h>

#include "nn/elementwise.h"
#include "nn/norms.h"
#include "testing.h"

namespace alibi::nn {
namespace {

using test::random_tensor;
using test::same_bits;

constexpr float residual_eps = 1e-5f;

/// A passage and its parts, whose own tests compare them with float64.
struct ResidualCase {
  int64_t rows, features;
  DType type;
  bool centered;
  float dropout;
};

std::vector<ResidualCase> residual_cases() {
  std::vector<ResidualCase> all;
  for (const DType type : {DType::float32, DType::bfloat16}) {
    for (const bool centered : {true, false}) {
      for (const float dropout : {0.0f, 0.3f}) {
        all.push_back({1, 1, type, centered, dropout});
        all.push_back({7, 37, type, centered, dropout});
        all.push_back({130, 64, type, centered, dropout});
      }
    }
  }
  return all;
}

nn::NormStatistics statistics_for(const ResidualCase& c) {
  return {c.centered ? Tensor({c.rows}) : Tensor(), Tensor({c.rows})};
}

const nn::BranchDropout dropout_of(const ResidualCase& c) { return {c.dropout, core::Random(3, 4)}; }

TEST(ResidualNorm, IsDropoutThenAddThenNorm) {
  test::for_each_isa([] {
    for (const ResidualCase& c : residual_cases()) {
      SCOPED_TRACE(
          fmt::format("{} x {} {} centered {} dropout {}", c.rows, c.features, name_of(c.type), c.centered, c.dropout));
      const Tensor x = random_tensor({c.rows, c.features}, 1), weight = random_tensor({c.features}, 2);
      const Tensor bias = random_tensor({c.features}, 3);
      const Tensor branch = random_tensor({c.rows, c.features}, 4, 1, c.type);
      const nn::NormParameters norm{weight, c.centered ? &bias : nullptr, residual_eps, c.centered};
      Tensor sum({c.rows, c.features}), kept({c.rows, c.features}, c.type), y({c.rows, c.features}, c.type);
      nn::NormStatistics statistics = statistics_for(c);
      nn::residual_norm(x, &branch, dropout_of(c), norm, sum, &kept, y, statistics);

      Tensor dropped({c.rows, c.features}), expected({c.rows, c.features}), normed({c.rows, c.features});
      nn::dropout(branch.to(DType::float32), c.dropout, core::Random(3, 4), dropped);
      nn::add(x, dropped, expected);
      Tensor mean({c.rows}), rstd({c.rows});
      const Tensor seen = expected.to(c.type).to(DType::float32);  // the norm sees what is kept
      c.centered ? nn::layer_norm(seen, weight, &bias, residual_eps, normed, mean, rstd)
                 : nn::rms_norm(seen, weight, residual_eps, normed, rstd);
      EXPECT_TRUE(same_bits(sum, expected));
      EXPECT_TRUE(same_bits(kept, expected.to(c.type)));
      EXPECT_TRUE(same_bits(y, normed.to(c.type)));
      EXPECT_TRUE(same_bits(statistics.rstd, rstd));
      if (c.centered) {
        EXPECT_TRUE(same_bits(statistics.mean, mean));
      }

      Tensor again({c.rows, c.features}, c.type);
      nn::normalize(kept, norm, statistics, again);
      EXPECT_TRUE(same_bits(again, y));

      Tensor in_place = x.clone();
      nn::residual_norm(in_place, &branch, dropout_of(c), norm, in_place, nullptr, y, statistics);
      EXPECT_TRUE(same_bits(in_place, expected));
    }
  });
}

TEST(ResidualNorm, BackwardIsNormThenAddThenDropout) {
  test::for_each_isa([] {
    for (const ResidualCase& c : residual_cases()) {
      SCOPED_TRACE(
          fmt::format("{} x {} {} centered {} dropout {}", c.rows, c.features, name_of(c.type), c.centered, c.dropout));
      const Tensor x = random_tensor({c.rows, c.features}, 1, 1, c.type), weight = random_tensor({c.features}, 2);
      const Tensor dy = random_tensor({c.rows, c.features}, 3, 1, c.type);
      const Tensor above = random_tensor({c.rows, c.features}, 4);
      const nn::NormParameters norm{weight, nullptr, residual_eps, c.centered};
      nn::NormStatistics statistics = statistics_for(c);
      Tensor y({c.rows, c.features}, c.type), wide({c.rows, c.features});
      const Tensor x32 = x.to(DType::float32), dy32 = dy.to(DType::float32);
      c.centered ? nn::layer_norm(x32, weight, nullptr, residual_eps, wide, statistics.mean, statistics.rstd)
                 : nn::rms_norm(x32, weight, residual_eps, wide, statistics.rstd);

      Tensor dsum = above.clone(), dbranch({c.rows, c.features}, c.type), dweight({c.features}), dbias({c.features});
      nn::residual_norm_backward(dy, x, norm, statistics, dropout_of(c), dsum, &dbranch, &dweight,
                                 c.centered ? &dbias : nullptr);

      Tensor dx({c.rows, c.features}), expected({c.rows, c.features}), expected_branch({c.rows, c.features}, c.type);
      Tensor expected_weight({c.features}), expected_bias({c.features});
      c.centered ? nn::layer_norm_backward(dy32, x32, weight, statistics.mean, statistics.rstd, dx, &expected_weight,
                                           &expected_bias)
                 : nn::rms_norm_backward(dy32, x32, weight, statistics.rstd, dx, &expected_weight);
      nn::add(above, dx, expected);
      nn::dropout_backward(expected, c.dropout, core::Random(3, 4), expected_branch);
      EXPECT_TRUE(same_bits(dsum, expected));
      EXPECT_TRUE(same_bits(dbranch, expected_branch));
      EXPECT_TRUE(same_bits(dweight, expected_weight));
      EXPECT_TRUE(same_bits(dbias, expected_bias));
    }
  });
}

TEST(ResidualNorm, SameBitsAtAnyThreadCount) {
  const int64_t rows = 501, n = 67;
  const Tensor x = random_tensor({rows, n}, 1), weight = random_tensor({n}, 2), dy = random_tensor({rows, n}, 3);
  test::expect_same_bits_at_any_thread_count([&] {
    const nn::NormParameters norm{weight, nullptr, residual_eps, true};
    nn::NormStatistics statistics{Tensor({rows}), Tensor({rows})};
    Tensor sum({rows, n}), y({rows, n}), dsum({rows, n}), dbranch({rows, n}), dweight({n});
    nn::residual_norm(x, &dy, {0.2f, core::Random(1)}, norm, sum, nullptr, y, statistics);
    nn::residual_norm_backward(dy, sum, norm, statistics, {0.2f, core::Random(2)}, dsum, &dbranch, &dweight, nullptr);
    return std::vector<Tensor>{sum, y, dsum, dbranch, dweight};
  });
}

}  // namespace
}  // namespace alibi::nn
