// Long contexts: precision at 131,072 and a million positions, and memory that grows with length.
#include <algorithm>
#include <cmath>

#include "attention/cases.h"
#include "attention/vector/tasks.h"

namespace alibi::kernels {
namespace {

using namespace test;

TEST(AttentionScale, SampledRowsAtLength131072) {
  // Only a few queries at the end of a long context: their arithmetic is the same as with all queries.
  constexpr int64_t length = 131072, queries = 3;
  AttentionCase c{.queries = queries, .keys = length, .heads = 3, .kv_heads = 1, .head_dim = 16};
  c.options = {.alibi_slopes = {0.5f, 0x1p-8f, 0x1p-16f}, .query_offset = length - queries};
  AttentionTensors t(c);
  std::vector<double> out, lse;
  attention_reference(t.q, t.k, t.v, c.options, out, &lse);
  const double plain = max_abs_diff(plain_attention(c, t, false).out, out);
  for (const float tolerance : {0.0f, 0x1p-24f}) {
    c.options.tolerance = tolerance;
    t.forward(c.options);
    EXPECT_TRUE(max_abs_diff(t.out, out) <= 2 * plain + 0x1p-22) << max_abs_diff(t.out, out) << " against " << plain;
    EXPECT_LE(max_abs_diff(t.state.lse, lse), 1e-6 * max_abs(lse));
  }
}

TEST(AttentionScale, WeightsAtAMillionPositions) {
  // Equal scores: the weights are those of the bias alone. v marks parts of the context, so that the output is a
  // weighted mean over all keys. A weight is exp(score - lse), so the error of lse is the weights' relative error.
  constexpr int64_t length = 1 << 20;
  AttentionCase c{.queries = 1, .keys = length, .heads = 2, .kv_heads = 1, .head_dim = 1};
  c.options = {.alibi_slopes = {0, 0x1p-18f}, .query_offset = length - 1};
  AttentionTensors t(c);
  t.k.fill(0);
  for (int64_t j = 0; j < length; ++j)
    t.v.data<float>()[j] = static_cast<float>(j % 1024 < 512 ? 1 : 0) + static_cast<float>(j >= length / 2);
  std::vector<double> out, lse;
  attention_reference(t.q, t.k, t.v, c.options, out, &lse);
  t.forward(c.options);
  EXPECT_LE(max_abs_diff(t.state.lse, lse), 1e-6);
  EXPECT_LE(max_abs_diff(t.out, out), 1e-5);
}

TEST(AttentionScale, SumsOfEqualTermsDoNotDrift) {
  // After a first key of weight 1 every other one adds the same odd number, whose rounding has always the same sign.
  constexpr int64_t length = 1 << 19;
  AttentionCase c{.queries = 1, .keys = length, .head_dim = 1};
  c.options = {.query_offset = length - 1, .softmax_scale = 1};
  AttentionTensors t(c);
  t.q.fill(1);
  t.k.fill(-1.1f);
  t.k.slice(1, length - 1, length).fill(0);
  const double expected = std::log(1 + static_cast<double>(length - 1) * std::exp(static_cast<double>(-1.1f)));
  for_each_isa([&] {
    t.forward(c.options);
    EXPECT_NEAR(static_cast<double>(t.state.lse.to_floats()[0]), expected, 1.5e-6);
  });
}

TEST(AttentionScale, MemoryGrowsWithLength) {
  // Peak memory beyond the tensors, forward and backward, at L and 2 L: it doubles, and is far below L * L.
  const RuntimeGuard guard;
  set_threads(2);
  for (const float tolerance : {0.0f, 0x1p-24f}) {
    std::vector<double> peaks;
    for (const int64_t length : {2048, 4096}) {
      AttentionCase c{.queries = length, .keys = length, .heads = 2, .kv_heads = 2, .head_dim = 16};
      c.options = {.alibi_slopes = {0.5f, 0.0625f}, .tolerance = tolerance};
      AttentionTensors t(c);
      t.forward(c.options);  // workspaces of the threads
      reset_peak_tensor_bytes();
      const int64_t before = tensor_bytes();
      t.forward(c.options);
      t.backward(c.options);
      peaks.push_back(static_cast<double>(peak_tensor_bytes() - before));
    }
    EXPECT_LE(peaks[1], 2.5 * peaks[0]);
    EXPECT_LE(peaks[1], 0.1 * 4096 * 4096 * 4);
  }
}

TEST(AttentionScale, ManyThreadsHaveWork) {
  // As in the preset base: 12 heads, 4,096 tokens. Each pass has enough tasks for 64 threads.
  for (const int64_t length : {1024, 2048}) {
    AttentionCase c{.batch = 4096 / length, .queries = length, .keys = length, .heads = 12, .kv_heads = 12};
    AttentionTensors t(c);
    const Problem problem = make_problem("test", t.q, t.k, t.v, t.out, c.options);
    EXPECT_GE(query_tasks(problem).size(), 160) << length << " forward";
    t.forward(c.options);
    const BlockIndex index(problem, BlockIndex::Of::queries, query_rows);
    std::vector<ChunkGroup> groups = chunk_groups(problem, t.state, index, BiasGradients(problem, {}));
    EXPECT_GE(chunk_tasks(groups).size(), 160) << length << " backward";
  }
}

}  // namespace
}  // namespace alibi::kernels
