// Forget gates in CUDA's kernels, in emulated lanes: against the reference, and against calls that must give the same.
#include "attention/cuda/gates.h"

#include <cmath>
#include <limits>

#include "attention/cases.h"
#include "attention/cuda/emulated_device.h"
#include "attention/gates.h"
#include "attention/problem.h"

namespace alibi::kernels {
namespace {

using namespace test;

struct GatedResults {
  Tensor out, lse, dq, dk, dv, dslopes, dsinks, dgates;
  AttentionStats stats;
};

/// Both passes on the device.
GatedResults run_gated(const AttentionCase& c, const AttentionTensors& t) {
  const auto there = [](const Tensor& tensor) { return tensor.to(Device::cuda); };
  const auto here = [](const Tensor& tensor) { return tensor.to(Device::cpu); };
  AttentionOptions options = c.options;
  if (options.log_decay) options.log_decay = there(*options.log_decay);
  const Tensor q = there(t.q), k = there(t.k), v = there(t.v);
  Tensor out = there(t.out), dq = there(t.dq), dk = there(t.dk), dv = there(t.dv);
  Tensor dslopes = there(Tensor({std::max<int64_t>(1, std::ssize(options.alibi_slopes))}));
  Tensor dsinks = there(Tensor({c.heads})), dgates = there(Tensor({c.batch, c.keys, c.heads}));
  AttentionState state;
  attention(q, k, v, options, out, &state);
  attention_backward(there(t.dout), q, k, v, out, state, options, dq, dk, dv,
                     {.dslopes = !options.alibi_slopes.empty() ? &dslopes : nullptr,
                      .dsinks = !options.sinks.empty() ? &dsinks : nullptr,
                      .dlog_decay = options.log_decay ? &dgates : nullptr});
  return {here(out),     here(state.lse), here(dq),     here(dk),           here(dv),
          here(dslopes), here(dsinks),    here(dgates), count_blocks(state)};
}

void expect_close(const char* name, const Tensor& found, const std::vector<double>& expected, double tolerance) {
  double scale = 1;
  for (const double x : expected) scale = std::isfinite(x) ? std::max(scale, std::abs(x)) : scale;
  const double diff = max_abs_diff(doubles(found), expected);
  EXPECT_TRUE(diff <= tolerance * scale) << name << " differs by " << diff << ", largest " << scale;
}

void expect_gated(const AttentionCase& c) {
  SCOPED_TRACE(c.name());
  const EmulatedDevice device(c.seed % 200 == 1);
  const AttentionTensors t(c);
  const GatedResults found = run_gated(c, t);
  std::vector<double> out, lse;
  attention_reference(t.q, t.k, t.v, c.options, out, &lse);
  AttentionReferenceGradients expected;
  attention_backward_reference(t.dout, t.q, t.k, t.v, c.options, expected);
  const double tolerance = c.dtype == DType::bfloat16 ? 2e-2 : 4e-3;
  expect_close("out", found.out, out, tolerance);
  expect_close("dq", found.dq, expected.dq, tolerance);
  expect_close("dk", found.dk, expected.dk, tolerance);
  expect_close("dv", found.dv, expected.dv, tolerance);
  expect_close("dgates", found.dgates, expected.dlog_decay, tolerance);
  if (!c.options.sinks.empty()) expect_close("dsinks", found.dsinks, expected.dsinks, tolerance);
  // The rounding of outputs counts with the distance.
  if (!c.options.alibi_slopes.empty()) expect_close("dslopes", found.dslopes, expected.dslopes, 3 * tolerance);
  // Log-sum-exps are not rounded to 16 bits. They show digits that sums of gates lose.
  for (size_t i = 0; i < lse.size(); ++i) {
    const auto of_row = static_cast<double>(found.lse.to_floats()[i]);
    if (of_row == lse[i]) continue;  // -infinity
    ASSERT_TRUE(std::abs(of_row - lse[i]) <= 2e-5 + 1e-6 * std::abs(lse[i]) + static_cast<double>(c.options.tolerance))
        << "lse " << i << ": " << of_row << ", expected " << lse[i];
  }
}

TEST(AttentionCudaGates, RandomCases) {
  size_t number = 0;
  for (AttentionCase c : cases_with_gates(48, 700)) {
    c.dtype = ++number % 2 == 0 ? DType::bfloat16 : DType::float16;
    c.head_dim = (c.head_dim + 7) / 8 * 8;
    c.options.buckets = {};
    c.options.softcap = 0;
    c.options.dropout_p = 0;
    expect_gated(c);
  }
}

TEST(AttentionCudaGates, EveryLengthAroundTheTiles) {
  uint64_t seed = 0;
  for (const int64_t length : {1, 2, 63, 64, 65, 127, 128, 129, 193, 257}) {
    for (const int64_t head_dim : {32, 64, 128, 256}) {
      if (length > 200 && head_dim != 64) continue;
      AttentionCase c{.queries = length, .keys = length + 31, .heads = 2, .kv_heads = 1, .head_dim = head_dim};
      c.seed = ++seed;
      c.dtype = seed % 2 == 0 ? DType::bfloat16 : DType::float16;
      if (seed % 3 == 0) c.options.alibi_slopes = {0.3f, 0};
      c.options.log_decay = random_gates({1, c.keys, 2}, seed, static_cast<Gates>(seed % 4));
      expect_gated(c);
    }
  }
}

TEST(AttentionCudaGates, PackedSequencesOfGroupedHeads) {
  AttentionCase c{.queries = 300, .keys = 330, .heads = 6, .kv_heads = 2, .head_dim = 32, .dtype = DType::float16};
  c.options.cu_seqlens_q = {0, 1, 130, 130, 170, 300};
  c.options.cu_seqlens_k = {0, 5, 134, 140, 140, 330};
  for (const Gates kind : {Gates::strong, Gates::sharp, Gates::documents}) {
    c.options.log_decay = random_gates({1, 330, 6}, 3, kind);
    c.options.tolerance = kind == Gates::strong ? 0x1p-24f : 0;
    c.options.sinks = kind == Gates::sharp ? random_sinks(6, 1) : std::vector<float>();
    expect_gated(c);
  }
}

TEST(AttentionCudaGates, ConstantGatesAreAlibi) {
  const EmulatedDevice device;
  AttentionCase slopes{.queries = 500, .keys = 500, .heads = 2, .kv_heads = 1, .head_dim = 32};
  slopes.dtype = DType::float16;
  AttentionCase gates = slopes;
  slopes.options.alibi_slopes = {0.25f, 0.01f};
  gates.options.log_decay = Tensor({1, 500, 2});
  for (int64_t i = 0; i < 1000; ++i) gates.options.log_decay->data<float>()[i] = i % 2 == 0 ? -0.25f : -0.01f;
  const AttentionTensors t(slopes);
  for (const float tolerance : {0.0f, 0x1p-11f}) {
    slopes.options.tolerance = gates.options.tolerance = tolerance;
    const GatedResults expected = run_gated(slopes, t), found = run_gated(gates, t);
    EXPECT_EQ(found.stats.blocks_visited, expected.stats.blocks_visited);
    EXPECT_EQ(found.stats.blocks_total, expected.stats.blocks_total);
    EXPECT_LE(max_abs_diff(found.lse, expected.lse), 1e-5);
    for (Tensor GatedResults::*result : {&GatedResults::out, &GatedResults::dq, &GatedResults::dk, &GatedResults::dv}) {
      EXPECT_LE(max_abs_diff(found.*result, expected.*result), 0x1p-9);
    }
    // The gradient of a slope is that of minus all gates of its head.
    const std::vector<double> of_gates = doubles(found.dgates), of_slopes = doubles(expected.dslopes);
    for (size_t head = 0; head < 2; ++head) {
      double sum = 0;
      for (size_t i = head; i < of_gates.size(); i += 2) sum -= of_gates[i];
      EXPECT_NEAR(sum, of_slopes[head], 2e-2 * std::abs(of_slopes[head]));
    }
  }
}

TEST(AttentionCudaGates, GatesOfZeroAreNoBias) {
  const EmulatedDevice device;
  AttentionCase c{.queries = 200, .keys = 200, .heads = 2, .kv_heads = 2, .head_dim = 64, .dtype = DType::bfloat16};
  const AttentionTensors t(c);
  const GatedResults expected = run_gated(c, t);
  c.options.log_decay = Tensor({1, 200, 2});
  const GatedResults found = run_gated(c, t);
  EXPECT_TRUE(same_bits(found.out, expected.out));
  EXPECT_TRUE(same_bits(found.lse, expected.lse));
}

TEST(AttentionCudaGates, DocumentsArePackedSequences) {
  const EmulatedDevice device;
  const std::vector<int32_t> begins = {0, 70, 128, 129, 300};
  AttentionCase packed{.queries = 300, .keys = 300, .heads = 2, .kv_heads = 1, .head_dim = 32};
  packed.dtype = DType::float16;
  AttentionCase gates = packed;
  packed.options.cu_seqlens_q = packed.options.cu_seqlens_k = begins;
  packed.options.log_decay = random_gates({1, 300, 2}, 4, Gates::mild);
  gates.options.log_decay = packed.options.log_decay->clone();
  for (const int64_t begin : {70, 128, 129}) gates.options.log_decay->slice(1, begin, begin + 1).fill(document);
  const AttentionTensors t(packed);
  for (const float tolerance : {0.0f, 0x1p-11f}) {
    packed.options.tolerance = gates.options.tolerance = tolerance;
    const GatedResults expected = run_gated(packed, t), found = run_gated(gates, t);
    EXPECT_LE(max_abs_diff(found.lse, expected.lse), 2e-6 + static_cast<double>(tolerance));
    for (Tensor GatedResults::*result :
         {&GatedResults::out, &GatedResults::dq, &GatedResults::dk, &GatedResults::dv, &GatedResults::dgates}) {
      EXPECT_LE(max_abs_diff(found.*result, expected.*result), 0x1p-8);
    }
    for (const int64_t begin : {0, 70, 128, 129}) {
      EXPECT_EQ(max_abs(doubles(found.dgates.slice(1, begin, begin + 1))), 0) << begin;
    }
  }
}

/// What is no gate shows: an output that is not a number, in this row and later ones.
TEST(AttentionCudaGates, WhatIsNoGateMakesNaN) {
  const EmulatedDevice device;
  AttentionCase c{.queries = 300, .keys = 300, .head_dim = 32, .dtype = DType::bfloat16};
  const AttentionTensors t(c);
  for (const float wrong : {1e-3f, std::numeric_limits<float>::quiet_NaN()}) {
    for (const float tolerance : {0.0f, 0x1p-11f}) {
      c.options.tolerance = tolerance;
      c.options.log_decay = random_gates({1, 300, 1}, 4, Gates::strong);
      c.options.log_decay->data<float>()[200] = wrong;
      const GatedResults found = run_gated(c, t);
      EXPECT_TRUE(std::isfinite(max_abs(found.out.slice(1, 0, 128).to_floats())));
      for (int64_t row = 200; row < 300; ++row) {
        EXPECT_TRUE(std::isnan(max_abs(found.out.slice(1, row, row + 1).to_floats()))) << row;
      }
    }
  }
}

TEST(AttentionCudaGates, MustBeOnTheDevice) {
  const EmulatedDevice device;
  const Tensor q = Tensor({1, 9, 2, 16}, DType::bfloat16).to(Device::cuda);
  AttentionOptions options;
  options.log_decay = Tensor({1, 9, 2});
  expect_error(
      [&] { attention(q, q, q, options); },
      "log_decay has shape [1, 9, 2], expected float32 [1, 9, 2] (the rows of k, and the heads of q) on 'cuda'");
}

TEST(AttentionCudaGates, TheSameBitsInAnyOrder) {
  AttentionCase c{.queries = 300, .keys = 300, .heads = 4, .kv_heads = 2, .head_dim = 32, .dtype = DType::bfloat16};
  c.options.alibi_slopes = {0.1f, 0, 0.01f, 0};
  c.options.tolerance = 0x1p-11f;
  c.options.sinks = {1, 0, -1, 2};
  c.options.log_decay = random_gates({1, 300, 4}, 2, Gates::documents);
  const AttentionTensors t(c);
  std::vector<GatedResults> found;
  for (const bool backwards : {false, true}) {
    const EmulatedDevice device(backwards);
    found.push_back(run_gated(c, t));
  }
  for (Tensor GatedResults::*result :
       {&GatedResults::out, &GatedResults::lse, &GatedResults::dq, &GatedResults::dk, &GatedResults::dv,
        &GatedResults::dslopes, &GatedResults::dsinks, &GatedResults::dgates}) {
    EXPECT_TRUE(same_bits(found[0].*result, found[1].*result));
  }
}

/// The last rows of a long context, with gates before them that would leave no digits to float32 sums. Few blocks are
/// visited.
TEST(AttentionCudaGates, IsPreciseFarFromTheFirstKey) {
  constexpr int64_t length = 1 << 16, queries = 5;
  AttentionCase c{.queries = queries, .keys = length, .heads = 2, .kv_heads = 1, .head_dim = 8};
  c.dtype = DType::float16;
  c.options.tolerance = 0x1p-24f;
  Tensor gates({1, length, 2});
  const core::Random random(4);
  for (int64_t i = 0; i < length; ++i) {
    const float u = random.uniform(static_cast<uint64_t>(i));
    gates.data<float>()[2 * i] = i < length - 300 ? -1e6f * u : -0.002f * u;
    gates.data<float>()[2 * i + 1] = i < length - 200 ? -1 : -1e-6f * u;
  }
  c.options.log_decay = gates;
  const EmulatedDevice device;
  const AttentionTensors t(c);
  std::vector<double> out, lse;
  attention_reference(t.q, t.k, t.v, c.options, out, &lse);
  const GatedResults found = run_gated(c, t);
  EXPECT_LE(max_abs_diff(found.lse, lse), 4e-6);
  EXPECT_LE(max_abs_diff(found.out, out), 0x1p-10);
  EXPECT_LT(found.stats.blocks_visited, 20);
}

/// Sums at position 1,000,000 are as exact as those at 1,000.
TEST(AttentionCudaGates, SumsAreExactAtAMillionKeys) {
  using cuda::GateBlock;
  constexpr int64_t keys = 1 << 20, blocks = keys / cuda::block_keys;
  std::vector<float> gates(keys);
  const core::Random random(4);
  for (size_t i = 0; i < gates.size(); ++i) gates[i] = -1000 * random.uniform(i);
  cuda::SequenceRows sequence = {};
  sequence.keys = keys;
  std::vector<GateBlock> sums(blocks + 1);
  cuda::GateArguments arguments = {};
  arguments.call.sequences = &sequence;
  arguments.call.heads = arguments.call.kv_heads = arguments.call.sequence_count = 1;
  arguments.call.key_units = blocks + 1;
  arguments.log_decay = gates.data();
  arguments.key_stride = 1;
  arguments.blocks = sums.data();
  ASSERT_EQ(cuda::launch<cuda::SumGates>(blocks + 1, arguments, nullptr), 0);
  ASSERT_EQ(cuda::launch<cuda::SumGateBlocks>(1, arguments, nullptr), 0);
  for (const size_t key : {size_t{1000}, size_t{1000000}}) {
    double expected = 0;
    for (size_t t = key + 1; t <= key + 300; ++t) expected += static_cast<double>(gates[t]) * std::log2(std::exp(1.0));
    const size_t block = key / 64, last = (key + 300) / 64;
    const double found =
        static_cast<double>(sums[block].to_end[key % 64]) +
        static_cast<double>(cuda::sum_of_blocks(sums.data(), static_cast<int>(block) + 1, static_cast<int>(last))) +
        static_cast<double>(sums[last].from_start[(key + 300) % 64]);
    EXPECT_NEAR(found, expected, 1e-7 * std::abs(expected)) << key;
  }
}

}  // namespace
}  // namespace alibi::kernels
