// The skip rule of CUDA's kernels in emulated lanes: skipped keys weigh at most as much as proven, results change by at
// most that, and the blocks visited are those of the rule written here in float64.
#include <cmath>
#include <functional>
#include <numbers>

#include "attention/cases.h"
#include "attention/cuda/arguments.h"
#include "attention/cuda/emulated_device.h"
#include "attention/problem.h"
#include "attention/skip/norms.h"
#include "attention/skip_change.h"

namespace alibi::kernels {
namespace {

using namespace test;

AttentionTensors on_device(AttentionTensors t) {
  for (Tensor* tensor : {&t.q, &t.k, &t.v, &t.dout, &t.out, &t.dq, &t.dk, &t.dv}) *tensor = tensor->to(Device::cuda);
  return t;
}

void set(Tensor rows, float value) {
  Tensor values = Tensor::empty(rows.shape());
  values.fill(value);
  rows.copy_from(values);
}

/// Changes stay within their bounds, and at most this share of the blocks is visited.
void expect_within_bounds(const AttentionCase& c, const AttentionTensors& t, float tolerance, double max_visited) {
  SCOPED_TRACE(c.name());
  AttentionTensors there = on_device(t);
  const double noise = c.dtype == DType::bfloat16 ? 0x1p-7 : 0x1p-10;
  const SkipChange change = skip_change(c, there, tolerance, noise);
  EXPECT_TRUE(change.worst() <= 1) << change.name();
  EXPECT_TRUE(change.visited <= max_visited) << change.name();
  EXPECT_TRUE(change.weights > 0 || max_visited >= 1) << "nothing of weight is skipped: " << change.name();
}

AttentionCase long_case(int64_t length) {
  AttentionCase c{.queries = length, .keys = length, .heads = 2, .kv_heads = 1, .head_dim = 64};
  c.dtype = DType::bfloat16;
  c.options.alibi_slopes = {0.5f, 0.0625f};
  return c;
}

TEST(AttentionCudaSkip, ChangesStayWithinTheirBounds) {
  const EmulatedDevice device;
  for (const float tolerance : {0x1p-11f, 0.1f}) {
    AttentionCase c = long_case(520);
    expect_within_bounds(c, AttentionTensors(c), tolerance, .7);
    c.options.causal = false;
    c.options.alibi_slopes_after = {0.2f, 0.7f};
    c.dtype = DType::float16;
    c.head_dim = 32;
    expect_within_bounds(c, AttentionTensors(c), tolerance, .7);
  }
}

TEST(AttentionCudaSkip, KeysWithACommonPart) {
  // All keys have a large common part, which makes their norms useless as bounds. All queries have a positive or a
  // negative product with it, so that it changes the scores of every row of a tile.
  const EmulatedDevice device;
  AttentionCase c = long_case(520);
  c.options.alibi_slopes = {0.25f, 0.125f};
  const core::Random random(5);
  const auto common = [&](int64_t i) { return random.normal(static_cast<uint64_t>(i % c.head_dim)); };
  for (const float lean : {0.0f, 0.6f, -0.6f}) {
    AttentionTensors t(c);
    Tensor keys = t.k.to(DType::float32), queries = t.q.to(DType::float32);
    for (int64_t i = 0; i < keys.elements(); ++i) keys.data<float>()[i] = 0.3f * keys.data<float>()[i] + 2 * common(i);
    for (int64_t i = 0; i < queries.elements(); ++i) queries.data<float>()[i] += lean * common(i);
    t.k = keys.to(c.dtype);
    t.q = queries.to(c.dtype);
    expect_within_bounds(c, t, 0x1p-11f, .55);
  }
}

TEST(AttentionCudaSkip, WhatMustNotBeSkippedIsNot) {
  // A key far back that outweighs all near ones; one that points along every query; not-a-number; a huge query.
  const EmulatedDevice device;
  const AttentionCase c = long_case(400);
  for (const float value :
       {3.0f, 300.0f, 1e30f, std::numeric_limits<float>::infinity(), std::numeric_limits<float>::quiet_NaN()}) {
    AttentionTensors t(c);
    set(t.k.slice(1, 3, 4), value);
    AttentionTensors there = on_device(t);
    AttentionOptions options = c.options;
    options.tolerance = 0x1p-11f;
    if (std::isfinite(value) && value < 1e3f) {
      const SkipChange change = skip_change(c, there, options.tolerance, 0x1p-7);
      EXPECT_TRUE(change.worst() <= 1) << value << ": " << change.name();
    } else {
      there.forward(options);
      if (!std::isfinite(value)) {
        EXPECT_EQ(count_blocks(there.state).blocks_visited, count_blocks(there.state).blocks_total) << value;
        EXPECT_TRUE(std::isnan(max_abs(there.out.slice(1, 350, 400).to_floats())));
      }
    }
  }
  AttentionTensors t(c);
  set(t.q.slice(1, 399, 400), 100);
  AttentionTensors there = on_device(t);
  EXPECT_LE(skip_change(c, there, 0x1p-11f, 0x1p-7).worst(), 1);
}

TEST(AttentionCudaSkip, ToleranceZeroAndHeadsWithoutSlopesVisitAll) {
  const EmulatedDevice device;
  AttentionCase c = long_case(300);
  AttentionTensors t = on_device(AttentionTensors(c));
  t.forward(c.options);
  EXPECT_EQ(count_blocks(t.state).blocks_visited, count_blocks(t.state).blocks_total);
  EXPECT_EQ(count_blocks(t.state).blocks_total, 2 * (2 + 4 + 5));
  c.options.tolerance = 0.01f;
  c.options.alibi_slopes = {0, 0};
  t.forward(c.options);
  EXPECT_EQ(count_blocks(t.state).blocks_visited, count_blocks(t.state).blocks_total);
  c.options.alibi_slopes = {0, 40};
  t.forward(c.options);
  EXPECT_EQ(count_blocks(t.state).blocks_visited, 2 + 4 + 5 + 2 + 2 + 1)
      << "one head visits all, the other what is near";
}

TEST(AttentionCudaSkip, BlocksOfOtherSequencesAreNotAsked) {
  // The second sequence's keys are tiny, so it skips most; the first one's are huge, and nothing of it is skipped.
  const EmulatedDevice device;
  AttentionCase c{.queries = 600, .keys = 600, .head_dim = 32, .dtype = DType::bfloat16};
  c.options = {
      .alibi_slopes = {0.05f}, .tolerance = 0x1p-11f, .cu_seqlens_q = {0, 260, 600}, .cu_seqlens_k = {0, 260, 600}};
  AttentionTensors t(c);
  for (int64_t i = 0; i < 260; ++i) set(t.k.slice(1, i, i + 1), i % 2 == 0 ? 30.0f : -30.0f);
  set(t.k.slice(1, 260, 600), 0.01f);
  AttentionTensors there = on_device(t);
  there.forward(c.options);
  const std::vector<int32_t> words = there.state.kernel.saved_blocks().to_ints();
  const int64_t tiles = words[1];
  ASSERT_EQ(tiles, 3 + 3);
  const auto visited = [&](int64_t tile) {
    return words[static_cast<size_t>(2 + tiles + tile)] - words[static_cast<size_t>(2 + tile)];
  };
  EXPECT_EQ(visited(2), 5);
  EXPECT_LT(visited(5), 6);
  const AttentionStats before = count_blocks(there.state);
  // A framework that keeps the state as tensors gets the same gradients.
  there.backward(c.options);
  const Tensor dk = there.dk.to(Device::cpu);
  there.state.kernel = KernelState::restore(there.state.kernel.saved_lse(), there.state.kernel.saved_blocks());
  there.backward(c.options);
  EXPECT_TRUE(same_bits(dk, there.dk.to(Device::cpu)));
  EXPECT_LT(before.blocks_visited, before.blocks_total);
}

/// The rule in float64 without slack, for keys that have nothing in common (the centre is zero), in tiles of 128 x 64:
/// the number of blocks that the row tiles visit if the budget is multiplied by `factor`. The last query is at the last
/// key.
int64_t blocks_of_the_rule(const AttentionCase& c, const AttentionTensors& t, double factor) {
  constexpr int64_t rows = 128, keys = kernels::cuda::block_keys;
  const std::vector<double> q = doubles(t.q), k = doubles(t.k);
  const double scale = 1 / std::sqrt(static_cast<double>(c.head_dim));
  const auto product = [&](const std::vector<double>& a, size_t i, const std::vector<double>& b, size_t j) {
    double sum = 0;
    const auto size = static_cast<size_t>(c.head_dim);
    for (size_t d = 0; d < size; ++d) sum += a[i * size + d] * b[j * size + d];
    return sum;
  };
  int64_t visited = 0;
  const int64_t offset = c.keys - c.queries;
  for (int64_t head = 0; head < c.heads; ++head) {
    const auto slope = static_cast<double>(c.options.alibi_slopes[static_cast<size_t>(head)]);
    const auto query = [&](int64_t i) { return static_cast<size_t>(i * c.heads + head); };
    for (int64_t row = 0; row < c.queries; row += rows) {
      const int64_t last = std::min(row + rows, c.queries) - 1;
      for (int64_t block = (offset + last) / keys; block >= 0; --block) {
        ++visited;
        const int64_t end = block * keys;  // keys before it remain
        if (end > offset + row) continue;
        bool over = true;
        for (int64_t i = row; i <= last && over; ++i) {
          const double x = scale * std::sqrt(product(q, query(i), q, query(i)));
          double rest = 0, sum = 0;
          for (int64_t j = 0; j <= offset + i; ++j) {
            const double bias = -slope * static_cast<double>(offset + i - j);
            if (j < end)
              rest += std::exp(x * std::sqrt(product(k, static_cast<size_t>(j), k, static_cast<size_t>(j))) + bias);
            if (j >= end) sum += std::exp(scale * product(q, query(i), k, static_cast<size_t>(j)) + bias);
          }
          over = rest <= factor * static_cast<double>(c.options.tolerance) * sum;
        }
        if (over) break;
      }
    }
  }
  return visited;
}

void expect_blocks_of_the_rule(AttentionCase c) {
  const EmulatedDevice device;
  c.dtype = DType::bfloat16;
  c.options.tolerance = 0x1p-11f;
  c.options.query_offset = c.keys - c.queries;
  AttentionTensors t(c);
  // Chords between levels and rounding cost a little. Without slack the rule would visit only these blocks.
  const int64_t least = blocks_of_the_rule(c, t, 1), most = blocks_of_the_rule(c, t, 0.75);
  AttentionTensors there = on_device(t);
  there.forward(c.options);
  EXPECT_GE(count_blocks(there.state).blocks_visited, least);
  EXPECT_LE(count_blocks(there.state).blocks_visited, most);
  EXPECT_LT(most, count_blocks(there.state).blocks_total * 6 / 10);
}

TEST(AttentionCudaSkip, BlocksVisitedAreThoseOfTheRule) {
  AttentionCase c{.queries = 900, .keys = 900, .heads = 4, .kv_heads = 1, .head_dim = 32};
  c.options.alibi_slopes = {0.4f, 0.2f, 0.1f, 0.07f};
  expect_blocks_of_the_rule(c);
}

TEST(AttentionCudaSkip, BoundsAddUpOverManyBlocks) {
  // A lane adds up several blocks, and with the smallest slope the weight of 20 of them counts.
  AttentionCase c{.queries = 130, .keys = 4300, .heads = 4, .kv_heads = 1, .head_dim = 32};
  c.options.alibi_slopes = {0.2f, 0.05f, 0.02f, 0.01f};
  expect_blocks_of_the_rule(c);
}

}  // namespace
}  // namespace alibi::kernels
