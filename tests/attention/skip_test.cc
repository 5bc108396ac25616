// The skip rule: far keys are skipped only if they provably do not matter, even with inputs made to mislead the rule.
#include <cmath>
#include <functional>

#include "attention/cases.h"

namespace alibi::kernels {
namespace {

using namespace test;

/// The share of blocks visited with a tolerance. Checks that the output changes by at most the stated bound,
/// 2 * tolerance * max |v|, and rounding.
double visited_share(const AttentionCase& c, AttentionTensors& t, float tolerance) {
  AttentionOptions options = c.options;
  options.tolerance = 0;
  t.forward(options);
  const std::vector<double> all = doubles(t.out), all_lse = doubles(t.state.lse);
  EXPECT_EQ(t.state.stats.blocks_visited, t.state.stats.blocks_total);
  t.backward(options);
  const std::vector<double> dq = doubles(t.dq), dk = doubles(t.dk), dv = doubles(t.dv);

  options.tolerance = tolerance;
  t.forward(options);
  const double stated = 2 * static_cast<double>(tolerance) * max_abs(t.v.to_floats());
  const double rounding = (c.dtype == DType::float32 ? 1e-6 : 1e-2) * max_abs(all);
  EXPECT_TRUE(max_abs_diff(t.out, all) <= stated + rounding) << c.name();
  const std::vector<double> lse = doubles(t.state.lse);
  for (size_t i = 0; i < lse.size(); ++i) {
    EXPECT_TRUE(lse[i] == all_lse[i] ||
                std::abs(lse[i] - all_lse[i]) <= 2 * static_cast<double>(tolerance) + 1e-6 * std::abs(lse[i]) + 1e-6)
        << c.name() << " lse " << i << ": " << lse[i] << ", without skipping " << all_lse[i];
  }
  t.backward(options);
  if (tolerance <= 0x1p-20f) {
    EXPECT_TRUE(relative_diff(doubles(t.dq), dq) <= (c.dtype == DType::float32 ? 1e-5 : 2e-2)) << c.name();
    EXPECT_TRUE(relative_diff(doubles(t.dk), dk) <= (c.dtype == DType::float32 ? 1e-5 : 2e-2)) << c.name();
    EXPECT_TRUE(relative_diff(doubles(t.dv), dv) <= (c.dtype == DType::float32 ? 1e-5 : 2e-2)) << c.name();
  }
  return static_cast<double>(t.state.stats.blocks_visited) / static_cast<double>(t.state.stats.blocks_total);
}

AttentionCase long_case(int64_t length, bool causal = true) {
  AttentionCase c{.queries = length, .keys = length, .heads = 4, .kv_heads = 2, .head_dim = 16};
  c.options = {.alibi_slopes = {0.5f, 0.25f, 0.125f, 0.0625f}, .causal = causal};
  return c;
}

TEST(AttentionSkip, LeavesOutMostOfALongContext) {
  for (const bool causal : {true, false}) {
    const AttentionCase c = long_case(2000, causal);
    AttentionTensors t(c);
    const double share = visited_share(c, t, 0x1p-24f);
    EXPECT_LT(share, 0.35);
    EXPECT_LT(visited_share(c, t, 0x1p-10f), share);
  }
}

TEST(AttentionSkip, WhatKeysHaveInCommonAndASinkCostLittle) {
  const AttentionCase c = long_case(2000);
  AttentionTensors t(c);
  const double plain = visited_share(c, t, 0x1p-11f);
  for (int64_t i = 0; i < t.k.elements(); ++i) t.k.data<float>()[i] += 4;
  EXPECT_LT(visited_share(c, t, 0x1p-11f), 1.15 * plain);
  for (int64_t i = 0; i < t.k.elements() / 2000; ++i) t.k.data<float>()[i] *= 4;  // the first key
  EXPECT_LT(visited_share(c, t, 0x1p-11f), 1.5 * plain);
}

TEST(AttentionSkip, HoldsOnEveryInstructionSetAndDataType) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    AttentionCase c = long_case(700, false);
    c.dtype = dtype;
    c.options.alibi_slopes_after = {0.3f, std::numeric_limits<float>::infinity(), 0.5f, 1.0f};
    AttentionTensors t(c);
    for_each_isa([&] { EXPECT_LT(visited_share(c, t, dtype == DType::float32 ? 0x1p-24f : 0x1p-11f), 0.8); });
  }
}

TEST(AttentionSkip, WorksBeyondTheKeysAndWithOffsets) {
  AttentionCase c = long_case(900);
  for (const int64_t offset : {-400, 300, 100000}) {
    c.options.query_offset = offset;
    AttentionTensors t(c);
    EXPECT_LT(visited_share(c, t, 0x1p-24f), 0.9) << offset;
    c.options.causal = false;
    EXPECT_LT(visited_share(c, t, 0x1p-24f), 0.9) << offset;
    c.options.causal = true;
  }
}

/// An input made to mislead the rule, and whether skipping may happen at all.
struct Adversary {
  const char* name;
  std::function<void(AttentionTensors&, AttentionOptions&)> change;
};

TEST(AttentionSkip, AdversarialInputs) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  const auto scale_row = [](Tensor& tensor, int64_t row, float factor) {
    float* values = tensor.data<float>();
    const int64_t size = tensor.elements() / tensor.size(1);
    for (int64_t i = 0; i < size; ++i) values[row * size + i] *= factor;
  };
  const std::vector<Adversary> adversaries = {
      {"a huge key far away", [&](AttentionTensors& t, AttentionOptions&) { scale_row(t.k, 3, 300); }},
      {"a far key that points along every query",
       [&](AttentionTensors& t, AttentionOptions&) {
         t.q.fill(2);
         t.k.slice(1, 3, 4).fill(40);
       }},
      {"a huge query", [&](AttentionTensors& t, AttentionOptions&) { scale_row(t.q, 599, 300); }},
      {"all scores equal", [&](AttentionTensors& t, AttentionOptions&) { t.k.fill(0); }},
      {"norms that grow with distance",
       [&](AttentionTensors& t, AttentionOptions&) {
         t.q.fill(1);
         for (int64_t j = 0; j < 600; ++j) t.k.slice(1, j, j + 1).fill(0.05f * static_cast<float>(600 - j));
       }},
      {"values that are huge far away", [&](AttentionTensors& t, AttentionOptions&) { scale_row(t.v, 2, 1e6f); }},
      {"tiny slopes",
       [](AttentionTensors&, AttentionOptions& o) {
         o.alibi_slopes = {0x1p-16f, 0x1p-20f, 0, 1e-40f};
       }},
      {"denormal keys", [](AttentionTensors& t, AttentionOptions&) { t.k.fill(1e-42f); }},
      {"denormal keys, huge queries",
       [](AttentionTensors& t, AttentionOptions&) {
         t.q.fill(1e38f);
         t.k.fill(1e-42f);
         t.k.slice(1, 3, 4).fill(1e-19f);
       }},
      {"a key whose squares underflow, and still matters",
       [](AttentionTensors& t, AttentionOptions& o) {
         o.softmax_scale = 1000;
         t.q.fill(4e18f);
         t.k.fill(0);
         t.k.slice(1, 3, 4).fill(1e-19f);
       }},
      {"norms that overflow",
       [](AttentionTensors& t, AttentionOptions&) {
         t.q.fill(1e-30f);
         t.k.slice(1, 3, 4).fill(1e30f);
       }},
      {"a negative scale",
       [](AttentionTensors& t, AttentionOptions& o) {
         o.softmax_scale = -0.5f;
         t.q.fill(2);
         t.k.slice(1, 3, 4).fill(-40);
       }},
      {"huge slopes",
       [](AttentionTensors&, AttentionOptions& o) {
         o.alibi_slopes = {1e30f, 1e10f, 100, infinity};
       }},
  };
  for (const Adversary& adversary : adversaries) {
    for (const bool causal : {true, false}) {
      SCOPED_TRACE(adversary.name);
      AttentionCase c = long_case(600, causal);
      AttentionTensors t(c);
      adversary.change(t, c.options);
      for (const float tolerance : {0x1p-24f, 0x1p-9f}) visited_share(c, t, tolerance);
    }
  }
}

TEST(AttentionSkip, InfiniteOrNanNormsNeverSkip) {
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    AttentionCase c = long_case(600);
    c.heads = c.kv_heads = 1;
    c.options.alibi_slopes = {0.5f};
    AttentionTensors t(c);
    t.k.slice(1, 1, 2).slice(3, 4, 5).fill(bad);
    c.options.tolerance = 0x1p-24f;
    t.forward(c.options);
    EXPECT_EQ(t.state.stats.blocks_visited, t.state.stats.blocks_total);
    EXPECT_TRUE(std::isnan(t.out.to_floats().back())) << "the far NaN must show, as without skipping";
  }
}

/// A key without a finite norm is left out of the centre: rows that do not see it skip as if it did not exist.
TEST(AttentionSkip, AKeyThatIsNotFiniteCostsThoseThatSeeIt) {
  AttentionCase c = long_case(640);
  c.options.tolerance = 0x1p-24f;
  for (const float bad : {std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    AttentionTensors t(c);
    for (int64_t i = 0; i < t.k.elements(); ++i) t.k.data<float>()[i] += 4;
    t.forward(c.options);
    const int64_t visited = t.state.stats.blocks_visited;
    t.k.slice(1, 608, 609).fill(bad);  // one of those that the centre is made of, every 32nd
    t.forward(c.options);
    // In each head two blocks of queries see it, and visit the ten blocks of keys.
    EXPECT_LE(t.state.stats.blocks_visited, visited + 4 * 2 * 10);
    EXPECT_LT(visited + 4 * 2 * 10, t.state.stats.blocks_total * 9 / 10);
  }
}

TEST(AttentionSkip, AFarKeyThatTakesAllTheWeightIsFound) {
  AttentionCase c = long_case(600);
  c.heads = c.kv_heads = 1;
  c.options.alibi_slopes = {0.5f};
  c.options.tolerance = 0x1p-24f;
  AttentionTensors t(c);
  t.q.fill(5);
  t.k.slice(1, 1, 2).fill(50);  // score 1000 against a penalty of 300
  t.v.slice(1, 1, 2).fill(7);
  t.forward(c.options);
  EXPECT_NEAR(static_cast<double>(t.out.to_floats().back()), 7, 1e-5);
}

/// Bounds of one packed sequence must not be taken from the keys of another.
TEST(AttentionSkip, KeysOfEachPackedSequenceAreItsOwn) {
  for (const int64_t head_dim : {16, 20}) {  // keys that are read where they lie, and copies
    AttentionCase c = long_case(1200);
    c.head_dim = head_dim;
    c.options.cu_seqlens_q = c.options.cu_seqlens_k = {0, 600, 1200};
    AttentionTensors t(c);
    t.q.fill(2);
    t.k.slice(1, 603, 604).fill(40);  // far from most of its sequence, and all that matters there
    EXPECT_LT(visited_share(c, t, 0x1p-24f), 0.9) << head_dim;
  }
}

TEST(AttentionSkip, DistancesThatBucketsShareAreAllVisited) {
  AttentionCase c = long_case(500);
  c.options = {.buckets = random_buckets(4, 3), .tolerance = 0x1p-10f};
  AttentionTensors t(c);
  t.forward(c.options);
  EXPECT_EQ(t.state.stats.blocks_visited, t.state.stats.blocks_total);
}

}  // namespace
}  // namespace alibi::kernels
