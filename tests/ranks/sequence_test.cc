// Attention over ranks that divide a sequence, in comparison with one process.
#include "ranks/sequence.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <limits>
#include <mutex>

#include "attention/cases.h"
#include "attention/gates.h"
#include "ranks/threads.h"
#include "testing.h"

namespace alibi::ranks {
namespace {

using test::AttentionCase;
using test::AttentionTensors;

/// The rows of a rank.
Tensor rows_of(const Tensor& tensor, const SequenceShard& shard) {
  return tensor.slice(1, shard.first, shard.first + shard.rows);
}

/// Zeros for the gradients of the bias that a call has.
struct BiasTensors {
  BiasTensors() = default;
  explicit BiasTensors(const AttentionOptions& options) {
    const Tensor table = test::table_of(options);
    if (table.defined()) dtable = Tensor(table.shape());
    if (!options.alibi_slopes.empty()) dslopes = Tensor({std::ssize(options.alibi_slopes)});
    if (!options.sinks.empty()) dsinks = Tensor({std::ssize(options.sinks)});
    if (options.log_decay) dlog_decay = Tensor(options.log_decay->shape());
  }
  /// Those that are sums over the ranks.
  std::array<Tensor*, 3> all() { return {&dtable, &dslopes, &dsinks}; }
  AttentionBiasGradients gradients() {
    const auto given = [](Tensor& tensor) { return tensor.defined() ? &tensor : nullptr; };
    return {
        .dtable = given(dtable), .dslopes = given(dslopes), .dsinks = given(dsinks), .dlog_decay = given(dlog_decay)};
  }

  Tensor dtable, dslopes, dsinks, dlog_decay;
};

struct Outcome {
  std::vector<int64_t> visited;                        ///< block pairs of each rank
  std::vector<int64_t> forward_bytes, backward_bytes;  ///< that each rank sent
  Tensor out, lse, dq, dk, dv;
  BiasTensors bias;

  double balance() const {
    double sum = 0, most = 0;
    for (const int64_t count : visited) {
      sum += static_cast<double>(count);
      most = std::max(most, static_cast<double>(count));
    }
    return sum / static_cast<double>(visited.size()) / most;
  }
};

Outcome over_ranks(int ranks, const AttentionCase& c, const AttentionTensors& t, bool backward = true) {
  Outcome result;
  result.visited.resize(static_cast<size_t>(ranks));
  result.forward_bytes = result.backward_bytes = result.visited;
  for (Tensor* const output : {&result.out, &result.dq}) *output = Tensor(t.q.shape(), c.dtype);
  for (Tensor* const output : {&result.dk, &result.dv}) *output = Tensor(t.k.shape(), c.dtype);
  result.lse = Tensor({c.batch, c.heads, c.queries});
  result.bias = BiasTensors(c.options);
  std::mutex mutex;
  run_as_threads(ranks, [&](Group& group) {
    const SequenceRanks over = sequence_ranks(group);
    const auto here = static_cast<size_t>(group.rank());
    const SequenceShard shard = sequence_shard(c.queries, group.rank(), group.size());
    const Tensor q = rows_of(t.q, shard), k = rows_of(t.k, shard), v = rows_of(t.v, shard);
    Tensor out = rows_of(result.out, shard), dq = rows_of(result.dq, shard);
    Tensor dk = rows_of(result.dk, shard), dv = rows_of(result.dv, shard);
    AttentionOptions options = c.options;
    if (options.log_decay) options.log_decay = rows_of(*options.log_decay, shard);
    SequenceAttentionState state;
    attention_over_ranks(over, c.queries, q, k, v, options, out, &state);
    result.visited[here] = state.local.stats.blocks_visited;
    result.forward_bytes[here] = group.bytes_sent();
    for (int64_t row = 0; row < c.batch * c.heads; ++row) {
      std::copy_n(state.local.lse.data<float>() + row * shard.rows, shard.rows,
                  result.lse.data<float>() + row * c.queries + shard.first);
    }
    if (!backward) return;
    BiasTensors bias(options);
    attention_over_ranks_backward(over, c.queries, rows_of(t.dout, shard), q, k, v, out, state, options, dq, dk, dv,
                                  bias.gradients());
    if (options.log_decay) rows_of(result.bias.dlog_decay, shard).copy_from(bias.dlog_decay);
    result.backward_bytes[here] = group.bytes_sent() - result.forward_bytes[here];
    const std::lock_guard lock(mutex);
    for (size_t i = 0; i < bias.all().size(); ++i) {
      Tensor *const part = bias.all()[i], *const sum = result.bias.all()[i];
      if (!part->defined()) continue;
      for (int64_t n = 0; n < sum->elements(); ++n) sum->data<float>()[n] += part->data<float>()[n];
    }
  });
  return result;
}

/// Some keys are outliers, and all share a common part.
void make_uneven(const AttentionCase& c, AttentionTensors& t) {
  const core::Random random(c.seed + 17);
  Tensor keys = t.k.to(DType::float32).clone();
  for (int64_t i = 0; i < keys.elements(); ++i) {
    const int64_t row = i / (c.kv_heads * c.head_dim);
    float& value = keys.data<float>()[i];
    if (random.below(static_cast<uint64_t>(row), 300) == 0) value *= 4;
    value += 0.5f * static_cast<float>(i % c.head_dim % 3);
  }
  t.k = keys.to(c.dtype).clone();
}

AttentionCase random_case(uint64_t seed) {
  const core::Random random(seed);
  auto below = [&, at = uint64_t{0}](uint64_t limit) mutable {
    return static_cast<int64_t>(random.below(at++, limit));
  };
  AttentionCase c;
  c.seed = seed;
  c.batch = 1 + below(4) / 3;
  c.kv_heads = 1 + below(2);
  c.heads = c.kv_heads * (1 + below(2));
  c.head_dim = std::vector<int64_t>{8, 20, 32, 64}[static_cast<size_t>(below(4))];
  c.queries = c.keys = std::vector<int64_t>{1, 150, 400, 769, 1100, 1700, 2304}[static_cast<size_t>(below(7))];
  c.dtype = below(2) == 0 ? DType::bfloat16 : DType::float32;
  c.input_scale = below(4) == 0 ? 3.0f : 1.0f;
  AttentionOptions& options = c.options;
  options.causal = below(3) != 0;
  options.tolerance = std::vector<float>{0, 0x1p-24f, 0x1p-11f, 0.01f}[static_cast<size_t>(below(4))];
  if (below(5) == 0) options.sliding_window = 1 + below(700);
  if (below(5) == 0) options.dropout_p = 0.25f;
  if (below(5) == 0) options.softcap = 2;
  if (below(6) == 0) options.softmax_scale = -0.2f;
  const auto steep = [&] { return std::exp2(-static_cast<float>(below(8))); };
  switch (below(8)) {
    case 0:
      break;
    case 1:
      options.buckets = test::random_buckets(c.heads, seed + 9);
      break;
    case 2:
      options.bias_by_distance = test::random_bias_by_distance(c.heads, 100, options.causal, seed + 9);
      break;
    case 3:  // slopes of each batch entry; one of them may be 0
      for (int64_t i = 0; i < c.batch * c.heads; ++i) options.alibi_slopes.push_back(below(8) == 0 ? 0 : steep());
      break;
    default:
      for (int64_t i = 0; i < c.heads; ++i) options.alibi_slopes.push_back(steep());
      if (options.causal || below(2) == 0) break;
      for (int64_t i = 0; i < c.heads; ++i) {
        options.alibi_slopes_after.push_back(below(3) == 0 ? std::numeric_limits<float>::infinity() : steep());
      }
  }
  if (below(4) == 0) options.sinks = test::random_sinks(c.heads, seed);
  return c;
}

void expect_as_one_process(const AttentionCase& c, AttentionTensors& t, int ranks) {
  SCOPED_TRACE(fmt::format("{} ranks, {}", ranks, c.name()));
  t.forward(c.options);
  BiasTensors bias(c.options);
  t.backward(c.options, bias.gradients());
  Outcome found = over_ranks(ranks, c, t);
  EXPECT_TRUE(test::same_bits(found.out, t.out));
  EXPECT_TRUE(test::same_bits(found.lse, t.state.lse));
  int64_t visited = 0;
  for (const int64_t count : found.visited) visited += count;
  EXPECT_EQ(visited, t.state.stats.blocks_visited);
  // A gradient in bfloat16 is a sum of up to `ranks` parts that are rounded to 8 bits.
  const double limit = c.dtype == DType::bfloat16 ? 0x1p-7 : 1e-5;
  EXPECT_LE(test::relative_diff(found.dq, test::doubles(t.dq)), limit) << "dq";
  EXPECT_LE(test::relative_diff(found.dk, test::doubles(t.dk)), limit) << "dk";
  EXPECT_LE(test::relative_diff(found.dv, test::doubles(t.dv)), limit) << "dv";
  for (size_t i = 0; i < bias.all().size(); ++i) {
    if (!bias.all()[i]->defined()) continue;
    EXPECT_LE(test::relative_diff(*found.bias.all()[i], test::doubles(*bias.all()[i])), 2e-5) << "bias " << i;
  }
  if (!c.options.log_decay) return;
  EXPECT_LE(test::relative_diff(found.bias.dlog_decay, test::doubles(bias.dlog_decay)), limit) << "dlog_decay";
}

TEST(SequenceParallel, HasTheBitsAndTheGradientsOfOneProcess) {
  constexpr uint64_t cases = 48;
  for (uint64_t seed = 1; seed <= cases; ++seed) {
    const AttentionCase c = random_case(1000 * seed);
    AttentionTensors t(c);
    if (seed % 2 == 0) make_uneven(c, t);
    expect_as_one_process(c, t, static_cast<int>(1 + seed % 4));
    if (HasFailure()) return;
  }
}

AttentionCase random_case_with_gates(uint64_t seed) {
  AttentionCase c = random_case(seed);
  const core::Random random(seed + 5);
  c.options.causal = true;
  c.options.alibi_slopes_after.clear();
  const auto kind = static_cast<test::Gates>(random.below(0, 4));
  c.options.log_decay = test::random_gates({c.batch, c.keys, c.heads}, seed + 6, kind);
  if (random.below(1, 2) == 0) c.options.sinks = test::random_sinks(c.heads, seed);
  return c;
}

TEST(SequenceParallel, GatesHaveTheBitsAndTheGradientsOfOneProcess) {
  constexpr uint64_t cases = 48;
  for (uint64_t seed = 1; seed <= cases; ++seed) {
    const AttentionCase c = random_case_with_gates(77000 + 1000 * seed);
    AttentionTensors t(c);
    if (seed % 2 == 0) make_uneven(c, t);
    expect_as_one_process(c, t, static_cast<int>(1 + seed % 4));
    if (HasFailure()) return;
  }
}

TEST(SequenceParallel, GatesAndSinksEqualTheReference) {
  for (const test::Gates kind : {test::Gates::mild, test::Gates::strong, test::Gates::sharp, test::Gates::documents}) {
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
      AttentionCase c{.queries = 900, .keys = 900, .heads = 4, .kv_heads = 2, .head_dim = 16, .dtype = dtype};
      c.options.tolerance = dtype == DType::float32 ? 0x1p-24f : 0x1p-11f;
      c.options.log_decay = test::random_gates({1, 900, 4}, 40, kind);
      c.options.sinks = test::random_sinks(4, 41);
      const AttentionTensors t(c);
      SCOPED_TRACE(fmt::format("gates {} {}", static_cast<int>(kind), c.name()));
      Outcome found = over_ranks(4, c, t);
      std::vector<double> out, lse;
      attention_reference(t.q, t.k, t.v, c.options, out, &lse);
      AttentionReferenceGradients expected;
      attention_backward_reference(t.dout, t.q, t.k, t.v, c.options, expected);
      const double limit = dtype == DType::float32 ? 1e-5 : 2e-2;
      EXPECT_LE(test::relative_diff(found.out, out), limit);
      EXPECT_LE(test::relative_diff(found.lse, lse), limit);
      EXPECT_LE(test::relative_diff(found.dq, expected.dq), limit);
      EXPECT_LE(test::relative_diff(found.dk, expected.dk), limit);
      EXPECT_LE(test::relative_diff(found.dv, expected.dv), limit);
      EXPECT_LE(test::relative_diff(found.bias.dsinks, expected.dsinks), limit);
      EXPECT_LE(test::relative_diff(found.bias.dlog_decay, expected.dlog_decay), limit);
    }
  }
}

TEST(SequenceParallel, ShardsCoverTheSequenceInWholeBlocks) {
  for (const int64_t length : {0, 1, 191, 192, 193, 5000, 65536}) {
    for (int ranks = 1; ranks <= 9; ++ranks) {
      int64_t next = 0, most = 0, least = length;
      for (int rank = 0; rank < ranks; ++rank) {
        const SequenceShard shard = sequence_shard(length, rank, ranks);
        EXPECT_EQ(shard.first, next);
        EXPECT_EQ(shard.first == length ? 0 : shard.first % 192, 0);
        next = shard.first + shard.rows;
        most = std::max(most, shard.rows);
        least = std::min(least, shard.rows);
      }
      EXPECT_EQ(next, length);
      EXPECT_LT(most - least, 2 * 192);
    }
  }
}

/// One call at a length at which most keys are far.
AttentionCase long_case(DType dtype) {
  AttentionCase c{.queries = 16384, .keys = 16384, .heads = 4, .kv_heads = 4, .head_dim = 32, .dtype = dtype};
  c.options.alibi_slopes = slopes(8);
  for (size_t i = 0; i < 4; ++i) c.options.alibi_slopes[i] = c.options.alibi_slopes[2 * i + 1];
  c.options.alibi_slopes.resize(4);
  c.options.tolerance = dtype == DType::float32 ? 0x1p-24f : 0x1p-11f;
  return c;
}

/// Bytes that a rank sends in ring attention, which passes each shard of keys and values to all other ranks.
double ring_bytes(const AttentionCase& c, int ranks) {
  return static_cast<double>(2 * c.batch * c.keys * c.kv_heads * c.head_dim) * static_cast<double>(size_of(c.dtype)) *
         (ranks - 1) / ranks;
}

TEST(SequenceParallel, FarKeysAreNotSentAndRanksHaveEqualWork) {
  constexpr int ranks = 4;
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    const AttentionCase c = long_case(dtype);
    const AttentionTensors t(c);
    const Outcome found = over_ranks(ranks, c, t, dtype == DType::float32);
    double forward = 0, backward = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      forward += static_cast<double>(found.forward_bytes[static_cast<size_t>(rank)]);
      backward += static_cast<double>(found.backward_bytes[static_cast<size_t>(rank)]);
    }
    EXPECT_LT(forward, 0.2 * ranks * ring_bytes(c, ranks));
    EXPECT_LT(backward, 0.2 * ranks * 2 * ring_bytes(c, ranks));
    EXPECT_GT(found.balance(), 0.85);
  }
}

TEST(SequenceParallel, GradientsOfGatesHaveTheSameBitsAtAnyThreadCount) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    AttentionCase c{.queries = 600, .keys = 600, .heads = 4, .kv_heads = 2, .head_dim = 16, .dtype = dtype};
    c.options.log_decay = test::random_gates({1, 600, 4}, 42, test::Gates::documents);
    const AttentionTensors t(c);
    test::expect_same_bits_at_any_thread_count([&] {
      const Outcome found = over_ranks(3, c, t);
      return std::vector<Tensor>{found.out, found.lse, found.dq, found.dk, found.dv, found.bias.dlog_decay};
    });
  }
}

TEST(SequenceParallel, ForgottenKeysAreNotSent) {
  constexpr int ranks = 4;
  AttentionCase c = long_case(DType::float32);
  c.options.alibi_slopes.clear();
  for (const test::Gates kind : {test::Gates::mild, test::Gates::documents}) {
    c.options.log_decay = test::random_gates({1, c.keys, c.heads}, 50, kind);
    const AttentionTensors t(c);
    const Outcome found = over_ranks(ranks, c, t);
    for (int rank = 0; rank < ranks; ++rank) {
      EXPECT_LT(static_cast<double>(found.forward_bytes[static_cast<size_t>(rank)]), 0.2 * ring_bytes(c, ranks));
      EXPECT_LT(static_cast<double>(found.backward_bytes[static_cast<size_t>(rank)]), 0.4 * ring_bytes(c, ranks));
    }
  }
}

TEST(SequenceParallel, WithoutABoundEveryVisibleKeyIsSent) {
  constexpr int ranks = 4;
  for (const bool causal : {true, false}) {
    AttentionCase c{.queries = 768, .keys = 768, .heads = 2, .kv_heads = 2, .head_dim = 16};
    c.options.causal = causal;
    const AttentionTensors t(c);
    const Outcome found = over_ranks(ranks, c, t, false);
    const int64_t shard = 2 * 192 * c.kv_heads * c.head_dim * 4;  // keys and values of a rank, bytes
    for (int rank = 0; rank < ranks; ++rank) {
      // Beside them go which kernels are supported (2 numbers), the ranges of both heads and whether keys were missing.
      const int64_t small = (ranks - 1) * (2 * 4 + 2 * 2 * 8 + 1);
      const int64_t readers = causal ? ranks - 1 - rank : ranks - 1;
      EXPECT_EQ(found.forward_bytes[static_cast<size_t>(rank)], readers * shard + small);
    }
  }
}

TEST(SequenceParallel, KeysThatAreNotFiniteAreVisitedAsInOneProcess) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    AttentionCase c{.queries = 1000, .keys = 1000, .heads = 2, .kv_heads = 1, .head_dim = 16, .dtype = dtype};
    c.options.alibi_slopes = {0.5f, 0.25f};
    c.options.tolerance = 0x1p-11f;
    AttentionTensors t(c);
    Tensor key = t.k.slice(1, 70, 71);
    key.fill(std::numeric_limits<float>::quiet_NaN());
    t.forward(c.options);
    const Outcome found = over_ranks(3, c, t, false);
    const std::vector<double> expected = test::doubles(t.out), out = test::doubles(found.out);
    int64_t nans = 0;
    for (size_t i = 0; i < out.size(); ++i) {
      EXPECT_EQ(std::isnan(out[i]), std::isnan(expected[i]));
      if (std::isnan(out[i])) ++nans;
      if (!std::isnan(out[i])) {
        EXPECT_EQ(out[i], expected[i]);
      }
    }
    EXPECT_GT(nans, 0);
  }
}

TEST(SequenceParallel, BadCallsAreExplained) {
  const AttentionCase c{.queries = 400, .keys = 400, .heads = 2, .kv_heads = 2, .head_dim = 8};
  const AttentionTensors t(c);
  Tensor out(t.q.shape());
  const SequenceRanks one;
  const auto call = [&](const SequenceRanks& ranks, int64_t length, const AttentionOptions& options) {
    return [=, &t, &out] { attention_over_ranks(ranks, length, t.q, t.k, t.v, options, out); };
  };
  test::expect_error(call(one, 401, {}), "[attention_over_ranks] q has 400 rows, expected 401");
  AttentionOptions moved;
  moved.query_offset = 3;
  test::expect_error(call(one, 400, moved), "query_offset is set, expected whole sequences of 400 rows");
  SequenceRanks two;
  two.count = 2;
  test::expect_error(call(two, 800, {}), "ranks.exchange is not set");
  two.rank = 2;
  test::expect_error(call(two, 800, {}), "ranks.rank is 2 of 2");
  SequenceAttentionState state;
  attention_over_ranks(one, 400, t.q, t.k, t.v, {}, out, &state);
  state.keys_read.clear();
  Tensor dq(t.q.shape()), dk(t.k.shape()), dv(t.v.shape());
  test::expect_error(
      [&] { attention_over_ranks_backward(one, 400, t.dout, t.q, t.k, t.v, out, state, {}, dq, dk, dv); },
      "[attention_over_ranks_backward] state has 0 key ranges, expected 2");
}

}  // namespace
}  // namespace alibi::ranks
