// The AMX kernels and the size of numbers: the softmax without a maximum and the one with it, what the skip rule may
// leave out, and values that are not finite.
#include "attention/amx/cases.h"

namespace alibi::kernels {
namespace {

using namespace test;

using AttentionAmxNumbers = AttentionAmx;

/// The forward pass against the reference, which visits every key whatever the tolerance.
void expect_output(AttentionTensors& t, const AttentionOptions& options) {
  std::vector<double> out;
  attention_reference(t.q, t.k, t.v, options, out);
  t.forward(options);
  EXPECT_LE(relative_diff(doubles(t.out), out), 0x1p-7);
  attention(t.q, t.k, t.v, options, t.out);
  EXPECT_LE(relative_diff(doubles(t.out), out), 0x1p-7) << "without lse";
}

TEST_P(AttentionAmxNumbers, ScoresOfEverySize) {
  // From scores of +-2, where the softmax needs no maximum, to +-1e4 and more.
  for (const float scale : {0.01f, 1.0f, 3.0f, 4.0f, 10.0f, 100.0f}) {
    for (const bool causal : {true, false}) {
      AttentionCase c = amx_case(200, 200, 2, 64);
      c.input_scale = scale;
      c.options.causal = causal;
      expect_right(c, scale <= 4 ? Passes::both : Passes::forward);
    }
  }
}

TEST_P(AttentionAmxNumbers, OneHugeKeyAndHugeValues) {
  for (const int64_t row : {0, 40, 299}) {
    const AttentionCase c = amx_case(300, 300, 1, 64);
    SCOPED_TRACE(row);
    AttentionTensors t(c);
    t.k.slice(1, row, row + 1).fill(1000);
    expect_output(t, c.options);
  }
  AttentionCase c = amx_case(300, 300, 1, 64);
  AttentionTensors t(c);
  t.v.copy_from(random_tensor(t.v.shape(), 8, 1e36f));
  expect_output(t, c.options);
}

TEST_P(AttentionAmxNumbers, SkippingKeepsItsBoundAndLeavesOutWork) {
  for (const bool causal : {true, false}) {
    for (const float scale : {1.0f, 5.0f}) {  // with and without a running maximum
      AttentionCase c = amx_case(1500, 1500, 4);
      c.options.causal = causal;
      c.input_scale = scale;
      SCOPED_TRACE(scale);
      AttentionTensors t(c);
      t.forward(c.options);
      EXPECT_EQ(t.state.stats.blocks_visited, t.state.stats.blocks_total);
      t.backward(c.options);
      const std::vector<double> out = doubles(t.out), lse = doubles(t.state.lse);
      const std::vector<double> dq = doubles(t.dq), dk = doubles(t.dk), dv = doubles(t.dv);
      double share = 1;
      for (const float tolerance : {0x1p-24f, 0x1p-11f}) {
        c.options.tolerance = tolerance;
        t.forward(c.options);
        t.backward(c.options);
        const AttentionStats& stats = t.state.stats;
        const double visited = static_cast<double>(stats.blocks_visited) / static_cast<double>(stats.blocks_total);
        EXPECT_LT(visited, share);
        share = visited;
        const double bound = 2 * static_cast<double>(tolerance) * max_abs(doubles(t.v));
        EXPECT_LE(max_abs_diff(t.out, out), bound + 0x1p-8 * max_abs(out));
        EXPECT_LE(max_abs_diff(t.state.lse, lse), static_cast<double>(tolerance) + 2e-5);
        attention(t.q, t.k, t.v, c.options, t.out);
        EXPECT_LE(max_abs_diff(t.out, out), bound + 0x1p-7 * max_abs(out));
        EXPECT_LE(relative_diff(doubles(t.dq), dq), 0x1p-7);
        EXPECT_LE(relative_diff(doubles(t.dk), dk), 0x1p-7);
        EXPECT_LE(relative_diff(doubles(t.dv), dv), 0x1p-7);
      }
      EXPECT_LT(share, scale > 1 ? 0.95 : 0.8);
    }
  }
}

TEST_P(AttentionAmxNumbers, SkippingFindsFarKeysThatMatter) {
  AttentionCase c = amx_case(600, 600, 2, 64);
  c.options.alibi_slopes = {0.25f, 0.0f};
  for (const bool causal : {true, false}) {
    AttentionTensors t(c);
    c.options.causal = causal;
    t.k.slice(1, causal ? 3 : 590, causal ? 4 : 591).fill(40);  // wins wherever sum(q) > 0
    c.options.tolerance = 0x1p-11f;
    expect_output(t, c.options);
  }
}

TEST_P(AttentionAmxNumbers, SkippingFindsFarKeysWhereNearOnesScoreLow) {
  // Every query's own key scores -98, and those 250 to 350 away 98 less half of their distance.
  for (const bool causal : {true, false}) {
    AttentionCase c = amx_case(600, 600, 1, 64);
    c.options.alibi_slopes = {0.5f};
    c.options.causal = causal;
    AttentionTensors t(c);
    t.q.fill(3.5f);
    t.k.fill(-3.5f);
    t.k.slice(1, 0, 200).fill(3.5f);
    t.k.slice(1, 450, 600).fill(causal ? -3.5f : 3.5f);
    c.options.tolerance = 0x1p-11f;
    expect_output(t, c.options);
  }
}

TEST_P(AttentionAmxNumbers, WeightsAddUpToOne) {
  // Weights are rounded to bfloat16 before they meet the values, so they must be divided by the sum of what they are.
  for (const float scale : {0.3f, 4.0f}) {  // with and without a running maximum
    AttentionCase c = amx_case(300, 300, 2, 64);
    c.input_scale = scale;
    AttentionTensors t(c);
    t.v.fill(1);
    t.forward(c.options);
    for (const float value : t.out.to_floats()) ASSERT_EQ(value, 1);
  }
}

TEST_P(AttentionAmxNumbers, SumsOfHugeValuesDoNotOverflow) {
  // Scores that alone would need no maximum: exp(40) times 1e36 is beyond float32.
  const AttentionCase c = amx_case(300, 300, 1, 64);
  AttentionTensors t(c);
  t.q.fill(2.234375f);
  t.k.fill(2.234375f);
  t.v.copy_from(random_tensor(t.v.shape(), 8, 1e36f));
  expect_output(t, c.options);
}

TEST_P(AttentionAmxNumbers, MaskedRowsMayHoldAnything) {
  const AttentionCase c = amx_case(100, 100, 2, 64);
  AttentionTensors clean(c);
  clean.forward(c.options);
  clean.backward(c.options);
  const std::vector<double> out = doubles(clean.out.slice(1, 0, 70)), dq = doubles(clean.dq.slice(1, 0, 70));
  // One column at a time, wherever it lies in a pair and in a tile.
  for (const int64_t column : {0, 1, 14, 15, 16, 17, 31, 32, 62, 63}) {
    for (const float poison : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
      for (Tensor AttentionTensors::*input : {&AttentionTensors::k, &AttentionTensors::v}) {
        SCOPED_TRACE(column);
        AttentionTensors bad(c);
        (bad.*input).slice(1, 70, 100).slice(3, column, column + 1).fill(poison);
        bad.forward(c.options);
        bad.backward(c.options);
        EXPECT_LE(max_abs_diff(bad.out.slice(1, 0, 70), out), 0x1p-6);
        EXPECT_LE(max_abs_diff(bad.dq.slice(1, 0, 70), dq), 0x1p-5);
        if (std::isnan(poison)) {
          EXPECT_TRUE(std::isnan(max_abs(bad.out.slice(1, 70, 100).to_floats())));
        }
      }
    }
  }
}

ALIBI_TEST_ON_BF16_ISAS(AttentionAmxNumbers);

}  // namespace
}  // namespace alibi::kernels
