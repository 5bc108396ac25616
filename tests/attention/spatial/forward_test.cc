// attention_positions() against the float64 reference, against the counted distances, and at unusual inputs.
#include <cmath>

#include "alibi/attention.h"
#include "attention/spatial/cases.h"

namespace alibi::kernels {
namespace {

using namespace test;

/// Rounding of the result: that of the type, and that of scores, which grows with their size.
double spatial_error(const SpatialCase& c) { return c.dtype == DType::float32 ? 2e-5 : 1.5e-2; }

void expect_spatial_forward(const SpatialCase& c) {
  SCOPED_TRACE(c.name());
  SpatialTensors t(c);
  std::vector<double> expected, lse;
  attention_positions_reference(t.q, t.k, t.v, t.positions, c.options, expected, &lse);
  for_each_isa([&] {
    t.out.fill(std::numeric_limits<float>::quiet_NaN());
    t.forward(c.options);
    EXPECT_TRUE(max_abs_diff(t.out, expected) <= spatial_error(c)) << max_abs_diff(t.out, expected);
    for (size_t i = 0; i < lse.size(); ++i) {
      const double found = static_cast<double>(t.state.lse.data<float>()[i]);
      if (found == lse[i]) continue;
      EXPECT_TRUE(std::abs(found - lse[i]) <= 2e-5 * (1 + std::abs(lse[i]))) << i << " " << found << " " << lse[i];
    }
  });
}

TEST(AttentionPositions, RandomCases) {
  for (const SpatialCase& c : random_spatial_cases(140, 1)) expect_spatial_forward(c);
}

TEST(AttentionPositions, RandomCasesInBfloat16) {
  for (SpatialCase c : random_spatial_cases(35, 2)) {
    c.dtype = DType::bfloat16;
    expect_spatial_forward(c);
  }
}

TEST(AttentionPositions, RandomCasesWithTheSkipRule) {
  for (SpatialCase c : random_spatial_cases(70, 3)) {
    c.options.tolerance = 0x1p-24f;
    expect_spatial_forward(c);
  }
}

/// Positions 0 .. n - 1 in one dimension are counted distances.
TEST(AttentionPositions, OneDimensionIsBidirectionalAlibi) {
  SpatialCase c{.queries = 300, .keys = 300, .heads = 4, .kv_heads = 2, .head_dim = 32, .dims = 1};
  c.options.alibi_slopes = slopes(4);
  SpatialTensors t(c);
  for (Tensor* of : {&t.positions.q, &t.positions.k}) {
    for (int64_t i = 0; i < 300; ++i) of->data<float>()[i] = static_cast<float>(i);
  }
  AttentionOptions counted;
  counted.alibi_slopes = c.options.alibi_slopes;
  counted.causal = false;
  for (const float tolerance : {0.0f, 0x1p-24f}) {
    counted.tolerance = c.options.tolerance = tolerance;
    t.forward(c.options);
    AttentionState state;
    const Tensor expected = attention(t.q, t.k, t.v, counted, &state);
    EXPECT_TRUE(max_abs_diff(t.out, expected) <= 3e-6);
    EXPECT_TRUE(max_abs_diff(t.state.lse, state.lse) <= 1e-5);
  }
}

/// A permutation of the tokens permutes the results, and changes their rounding only.
TEST(AttentionPositions, DoesNotDependOnTheOrderOfTokens) {
  SpatialCase c{.queries = 200, .keys = 200, .heads = 2, .kv_heads = 2, .self = true};
  c.options.alibi_slopes = {0.5f, 0.1f};
  SpatialTensors t(c), reversed(c);
  for (int64_t i = 0; i < 200; ++i) {
    for (const auto& [to, from] : {std::pair{&reversed.q, &t.q},
                                   {&reversed.k, &t.k},
                                   {&reversed.v, &t.v},
                                   {&reversed.positions.q, &t.positions.q}}) {
      to->slice(1, i, i + 1).copy_from(from->slice(1, 199 - i, 200 - i));
    }
  }
  t.forward(c.options);
  reversed.forward(c.options);
  for (int64_t i = 0; i < 200; ++i) {
    EXPECT_TRUE(max_abs_diff(t.out.slice(1, i, i + 1), reversed.out.slice(1, 199 - i, 200 - i)) <= 3e-6);
  }
}

TEST(AttentionPositions, SameBitsAtAnyThreadCount) {
  for (SpatialCase c : random_spatial_cases(12, 4)) {
    SCOPED_TRACE(c.name());
    c.options.tolerance = 0x1p-11f;
    expect_same_bits_at_any_thread_count([&] {
      SpatialTensors t(c);
      t.forward(c.options);
      Tensor dslopes({static_cast<int64_t>(c.options.alibi_slopes.size())});
      t.backward(c.options, c.options.alibi_slopes.empty() ? nullptr : &dslopes);
      return std::vector<Tensor>{t.out, t.state.lse, t.state.stops, t.dq, t.dk, t.dv, dslopes};
    });
  }
}

TEST(AttentionPositions, BadKeysShow) {
  SpatialCase c{.queries = 300, .keys = 300, .heads = 1, .kv_heads = 1, .pattern = Pattern::clusters};
  c.options.alibi_slopes = {1.0f};
  c.options.tolerance = 0x1p-11f;
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    SpatialTensors t(c);
    t.k.data<float>()[3 * c.head_dim] = bad;
    t.forward(c.options);
    EXPECT_EQ(t.state.stats.blocks_visited, t.state.stats.blocks_total);
    int64_t shown = 0;
    for (int64_t i = 0; i < 300; ++i) {
      const float x = t.out.data<float>()[i * c.head_dim];
      shown += std::isfinite(x) ? 0 : 1;
    }
    EXPECT_GT(shown, 100);  // infinity times a negative query scores -infinity
  }
}

TEST(AttentionPositions, LargeAndTinyCoordinates) {
  for (const float size : {0x1p-40f, 0x1p-10f, 0x1p20f, 0x1p50f}) {
    SpatialCase c{.queries = 100, .keys = 90, .heads = 1, .kv_heads = 1};
    c.options.alibi_slopes = {0.5f / size};
    c.options.tolerance = 0x1p-24f;
    SpatialTensors t(c);
    for (Tensor* of : {&t.positions.q, &t.positions.k}) {
      for (int64_t i = 0; i < of->elements(); ++i) of->data<float>()[i] *= size;
    }
    std::vector<double> expected;
    attention_positions_reference(t.q, t.k, t.v, t.positions, c.options, expected);
    t.forward(c.options);
    EXPECT_TRUE(max_abs_diff(t.out, expected) <= 2e-5) << size;
  }
}

TEST(AttentionPositions, StridedViews) {
  SpatialCase c{.queries = 70, .keys = 70, .heads = 2, .kv_heads = 2, .self = true};
  c.options.alibi_slopes = {0.5f, 0.25f};
  SpatialTensors t(c);
  t.forward(c.options);
  const Tensor all = random_tensor({1, 70, 6, 16}, 9);
  Tensor q = all.slice(2, 0, 2), k = all.slice(2, 2, 4), v = all.slice(2, 4, 6);
  q.copy_from(t.q);
  k.copy_from(t.k);
  v.copy_from(t.v);
  EXPECT_TRUE(same_bits(attention_positions(q, k, v, t.positions, c.options), t.out));
}

TEST(AttentionPositions, Errors) {
  const SpatialCase c{.batch = 2, .queries = 5, .keys = 6, .heads = 2, .kv_heads = 1};
  const auto expect = [&](const auto& change, std::string_view part) {
    SpatialCase changed = c;
    changed.options.alibi_slopes = {0.5f, 0.5f};
    SpatialTensors t(changed);
    change(t, changed.options);
    expect_error([&] { t.forward(changed.options); }, part);
  };
  using Options = AttentionPositionsOptions;
  expect([](SpatialTensors& t, Options&) { t.positions.q = Tensor(); },
         "positions_q has shape [], expected [2 or 1, 5, 1 to 3]");
  expect([](SpatialTensors& t, Options&) { t.positions.k = Tensor(); },
         "positions_q has shape [2, 5, 2], expected [2 or 1, 6");
  expect([](SpatialTensors& t, Options&) { t.positions.k = Tensor({2, 6, 4}); }, "positions_k has shape [2, 6, 4]");
  expect([](SpatialTensors& t, Options&) { t.positions.k = Tensor({3, 6, 2}); }, "positions_k has shape [3, 6, 2]");
  expect(
      [](SpatialTensors& t, Options&) {
        t.positions.k = Tensor({1, 6, 3});
      },
      "positions_k has 3 dimensions of float32, expected 2");
  expect(
      [](SpatialTensors& t, Options&) {
        t.positions.k = Tensor({1, 6, 2}, DType::int32);
      },
      "positions_k has 2 dimensions of int32");
  expect(
      [](SpatialTensors& t, Options&) {
        t.positions.k = Tensor({1, 6, 2}, DType::bfloat16);
      },
      "expected float32 or int32");
  expect([](SpatialTensors& t, Options&) { t.positions.k.data<float>()[13] = NAN; }, "positions_k[1, 0, 1] is nan");
  expect([](SpatialTensors& t, Options&) { t.positions.q.data<float>()[0] = 0x1p61f; },
         "expected a finite number of at most 2^60");
  expect([](SpatialTensors&, Options& o) { o.alibi_slopes[1] = HUGE_VALF; }, "alibi_slopes[1] is inf");
  expect([](SpatialTensors&, Options& o) { o.alibi_slopes = {1}; }, "alibi_slopes has 1 values");
  expect([](SpatialTensors&, Options& o) { o.leading = -1; }, "leading is -1");
  expect([](SpatialTensors&, Options& o) { o.tolerance = 1; }, "tolerance is 1");
  expect([](SpatialTensors&, Options& o) { o.seqused_k = {6}; }, "seqused_k has 1 values, expected 2");
  expect([](SpatialTensors&, Options& o) { o.seqused_q = {5, 6}; }, "seqused_q[1] is 6, expected 0 to 5");
  expect([](SpatialTensors& t, Options&) { t.out = t.q; }, "[attention_positions] out shares memory with q");
}

/// Positions of leading tokens are not read.
TEST(AttentionPositions, LeadingTokensNeedNoPositions) {
  SpatialCase c{.queries = 60, .keys = 60, .heads = 1, .kv_heads = 1, .self = true};
  c.options.alibi_slopes = {0.5f};
  c.options.leading = 2;
  SpatialTensors t(c);
  t.forward(c.options);
  const Tensor before = t.out.clone();
  for (int i = 0; i < 4; ++i) t.positions.q.data<float>()[i] = std::numeric_limits<float>::quiet_NaN();
  t.forward(c.options);
  EXPECT_TRUE(same_bits(t.out, before));
}

}  // namespace
}  // namespace alibi::kernels
