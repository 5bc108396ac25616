// What the tests of the kernels in amx/ share: cases that they take, and how right they must be.
#pragma once

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "attention/cases.h"
#include "attention/kernel.h"
#include "attention/problem.h"
#include "core/product_rates.h"

namespace alibi::test {

/// The tests run with each instruction set that the kernels have products for.
class AttentionAmx : public testing::TestWithParam<Isa> {
 protected:
  void SetUp() override {
    if (best_isa() < GetParam()) {
      GTEST_SKIP() << "this CPU has no " << name_of(GetParam()) << ", only " << name_of(best_isa()) << " at most";
    }
    set_isa(GetParam());
    core::set_bf16_speedup(2);  // the kernels are to be tested on every CPU that can run them
  }
  void TearDown() override { core::set_bf16_speedup({}); }

 private:
  RuntimeGuard guard_;
};

/// Instantiates the tests of a file.
#define ALIBI_TEST_ON_BF16_ISAS(Suite)                                               \
  INSTANTIATE_TEST_SUITE_P(Isas, Suite, testing::Values(Isa::avx512_bf16, Isa::amx), \
                           [](const testing::TestParamInfo<Isa>& isa) { return std::string(name_of(isa.param)); })

inline bool supported(const AttentionCase& c, const AttentionTensors& t) {
  return kernels::amx_kernel().supports(kernels::make_problem("test", t.q, t.k, t.v, t.out, c.options));
}

inline AttentionCase amx_case(int64_t queries, int64_t keys, int64_t heads = 1, int64_t head_dim = 32) {
  AttentionCase c{.queries = queries, .keys = keys, .heads = heads, .kv_heads = heads, .head_dim = head_dim};
  c.options.alibi_slopes = slopes(static_cast<int>(heads));
  c.options.query_offset = keys - queries;
  c.dtype = DType::bfloat16;
  return c;
}

inline double root_mean_square(const std::vector<double>& found, const std::vector<double>& expected) {
  if (found.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double sum = 0;
  for (size_t i = 0; i < found.size(); ++i) sum += (found[i] - expected[i]) * (found[i] - expected[i]);
  return std::sqrt(sum / static_cast<double>(std::max<size_t>(1, found.size())));
}

/// The largest error at most three times and the mean error at most twice those of the plain formula in bfloat16, as
/// FlashAttention's tests require of gradients; the floor, in units of the largest value, is for calls so small that
/// the latter is next to nothing, its absolute part for gradients that cancel to zero.
inline void expect_accurate(const char* name, const Tensor& found, const std::vector<double>& expected,
                            const std::vector<double>& plain) {
  const double largest = max_abs(expected), most = max_abs_diff(found, expected);
  EXPECT_TRUE(most <= 3 * max_abs_diff(plain, expected) + 0x1p-8 * largest + 1e-5)
      << name << ": " << most << " against " << max_abs_diff(plain, expected) << ", largest " << largest;
  const double mean = root_mean_square(doubles(found), expected);
  EXPECT_TRUE(mean <= 2 * root_mean_square(plain, expected) + 0x1p-11 * largest + 1e-6)
      << name << ": " << mean << " against " << root_mean_square(plain, expected) << " in the mean";
}

inline AttentionCase t5_case(int64_t queries, int64_t keys, int64_t heads = 2, int64_t buckets = 32,
                             int max_distance = 128) {
  AttentionCase c = amx_case(queries, keys, heads);
  c.options.alibi_slopes.clear();
  c.options.buckets = random_buckets(heads, 21, buckets, max_distance);
  return c;
}

enum class Passes { forward, both };

/// Gradients of the bias, of whichever kind a case has.
class BiasTensors {
 public:
  explicit BiasTensors(const AttentionCase& c) {
    if (const Tensor table = table_of(c.options); table.defined()) table_ = Tensor(table.shape());
    if (!c.options.alibi_slopes.empty()) slopes_ = Tensor({static_cast<int64_t>(c.options.alibi_slopes.size())});
  }
  AttentionBiasGradients gradients() {
    return {.dtable = table_.defined() ? &table_ : nullptr, .dslopes = slopes_.defined() ? &slopes_ : nullptr};
  }
  /// Sums of many terms of either sign, each with the rounding of the output in it: measured by their number.
  void expect_right(const AttentionCase& c, const AttentionReferenceGradients& expected) const {
    const double rows =
        std::sqrt(static_cast<double>(c.batch * c.queries)) / (1 - static_cast<double>(c.options.dropout_p));
    if (table_.defined()) {
      EXPECT_TRUE(max_abs_diff(table_, expected.dtable) <= 1.5e-2 * rows + 0x1p-8 * max_abs(expected.dtable))
          << "dtable: " << max_abs_diff(table_, expected.dtable) << " of " << max_abs(expected.dtable);
    }
    if (slopes_.defined()) {
      const double distance = static_cast<double>(std::min<int64_t>(c.keys, 300));
      EXPECT_TRUE(max_abs_diff(slopes_, expected.dslopes) <= 1.5e-2 * rows * distance)
          << "dslopes: " << max_abs_diff(slopes_, expected.dslopes) << " of " << max_abs(expected.dslopes);
    }
  }

 private:
  Tensor table_, slopes_;
};

inline void expect_right(const AttentionCase& c, Passes passes = Passes::both) {
  SCOPED_TRACE(c.name());
  AttentionTensors t(c);
  ASSERT_TRUE(supported(c, t));
  const PlainResult plain = plain_attention(c, t, passes == Passes::both);
  std::vector<double> out, lse;
  attention_reference(t.q, t.k, t.v, c.options, out, &lse);
  const auto expect_out = [&](const char* name) {
    if (c.options.dropout_p == 0) return expect_accurate(name, t.out, out, plain.out);
    EXPECT_LE(relative_diff(doubles(t.out), out), 0x1p-7) << name;
  };
  attention(t.q, t.k, t.v, c.options, t.out);  // whose weights may be computed to fewer digits
  expect_out("out without lse");
  t.forward(c.options);
  expect_out("out");
  const std::vector<double> found = doubles(t.state.lse);
  const double score = 1 + static_cast<double>(c.input_scale * c.input_scale);
  for (size_t i = 0; i < lse.size(); ++i) {
    EXPECT_TRUE(std::abs(found[i] - lse[i]) <= 6e-6 * score + 1e-6 * std::abs(lse[i])) << "lse " << i;
  }
  if (passes == Passes::forward) return;
  AttentionReferenceGradients expected;
  attention_backward_reference(t.dout, t.q, t.k, t.v, c.options, expected);
  BiasTensors bias(c);
  t.backward(c.options, bias.gradients());
  bias.expect_right(c, expected);
  if (c.options.dropout_p == 0) {
    expect_accurate("dq", t.dq, expected.dq, plain.dq);
    expect_accurate("dk", t.dk, expected.dk, plain.dk);
    expect_accurate("dv", t.dv, expected.dv, plain.dv);
  } else {  // the plain formula knows no dropout
    const double dp = max_abs(t.dout.to_floats()) * max_abs(t.v.to_floats());
    EXPECT_LE(max_abs_diff(t.dq, expected.dq), 0x1p-7 * std::max(dp, max_abs(expected.dq)));
    EXPECT_LE(max_abs_diff(t.dk, expected.dk), 0x1p-7 * std::max(dp, max_abs(expected.dk)));
    EXPECT_LE(relative_diff(doubles(t.dv), expected.dv), 0x1p-7);
  }
}

}  // namespace alibi::test
