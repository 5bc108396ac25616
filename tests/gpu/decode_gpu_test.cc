// Cached decoding on a GPU against the float64 reference and the CPU's (scripts/gpu-check).
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <cmath>

#include "alibi/stream.h"
#include "attention/decode/cases.h"

namespace alibi::test {
namespace {

Tensor there(const Tensor& tensor) { return tensor.to(Device::cuda); }

/// Filled in pieces, of which one is forgotten and comes again.
KvCache cache_on_gpu(const Tensor& k, const Tensor& v, const Tensor& gates = {}) {
  KvCache cache(k.size(0), k.size(2), k.size(3), k.dtype(), Device::cuda);
  const Tensor all_k = there(k), all_v = there(v);
  const int64_t keys = k.size(1);
  for (const int64_t piece : {keys / 2, int64_t{1}, int64_t{1}, int64_t{70}, keys}) {
    const int64_t begin = cache.length(), end = std::min(keys, begin + piece);
    std::optional<Tensor> of_keys;
    if (gates.defined()) of_keys = there(gates.slice(1, begin, end).clone());
    cache.append(all_k.slice(1, begin, end), all_v.slice(1, begin, end), of_keys);
    if (piece != 70) continue;
    cache.truncate(cache.length() / 3);
  }
  return cache;
}

void expect_decodes_on_gpu(const DecodeCase& c) {
  SCOPED_TRACE(c.name());
  const DecodeInputs in(c);
  const KvCache cache = cache_on_gpu(in.k, in.v, c.log_decay());
  ASSERT_EQ(cache.length(), c.keys);
  AttentionState state;
  const Tensor out = attention_decode(there(in.q), cache, c.options(), &state).to(Device::cpu);
  std::vector<double> expected, lse;
  attention_reference(in.q, in.k, in.v, c.plain_options(), expected, &lse);
  const double unit = c.dtype == DType::bfloat16 ? 0x1p-8 : 0x1p-11;
  const double skipped = 2 * static_cast<double>(c.tolerance) * max_abs(doubles(in.v));
  EXPECT_TRUE(max_abs_diff(out, expected) <= 1.5 * unit * (max_abs(expected) + 0.1) + skipped)
      << "differs by " << max_abs_diff(out, expected);
  const std::vector<double> found = doubles(state.lse);
  for (size_t i = 0; i < lse.size(); ++i) {
    if (found[i] == lse[i]) continue;  // -infinity
    ASSERT_TRUE(std::abs(found[i] - lse[i]) <= 2e-5 + 1e-6 * std::abs(lse[i]) + 1.01 * static_cast<double>(c.tolerance))
        << "lse " << i << ": " << found[i] << ", expected " << lse[i];
  }
  EXPECT_LE(state.stats.blocks_visited, state.stats.blocks_total);
}

class GpuDecode : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, GpuDecode, ::testing::Values(DType::bfloat16, DType::float16),
                         [](const auto& parameter) { return name_of(parameter.param); });

/// What runs under compute-sanitizer.
TEST_P(GpuDecode, EveryKernelOnFewTiles) {
  for (const int64_t head_dim : {64, 128, 96, 256, 8}) {
    for (const bool causal : {true, false}) {
      DecodeCase c{.batch = 2, .keys = 500, .queries = 3, .heads = 14, .kv_heads = 2, .head_dim = head_dim};
      c.dtype = GetParam();
      c.causal = causal;
      if (!causal) c.offset = 200;
      for (const float tolerance : {0.0f, 0x1p-11f}) {
        c.tolerance = tolerance;
        c.gates = {};
        expect_decodes_on_gpu(c);
        if (!causal) continue;
        for (const Gates kind : {Gates::mild, Gates::strong, Gates::documents}) {
          c.gates = kind;
          expect_decodes_on_gpu(c);
        }
      }
    }
  }
}

TEST_P(GpuDecode, EveryLengthAroundBlocksAndSplits) {
  for (const int64_t keys : {1, 2, 15, 17, 63, 64, 65, 127, 129, 255, 256, 257, 1023, 1025, 4099, 20000}) {
    for (const int64_t head_dim : {64, 128}) {
      for (const float tolerance : {0.0f, 0x1p-11f}) {
        expect_decodes_on_gpu({.keys = keys,
                               .heads = 8,
                               .kv_heads = 4,
                               .head_dim = head_dim,
                               .dtype = GetParam(),
                               .tolerance = tolerance});
      }
    }
  }
}

TEST_P(GpuDecode, WindowsOffsetsAndRowsOfSeveralTiles) {
  for (const int64_t window : {0, 1, 100}) {
    for (const int64_t offset : {0, 64, 310, 500, -2}) {
      expect_decodes_on_gpu({.keys = 300,
                             .queries = 5,
                             .heads = 8,
                             .dtype = GetParam(),
                             .causal = window == 0,
                             .window = window,
                             .offset = offset,
                             .tolerance = 0x1p-11f});
    }
  }
}

TEST_P(GpuDecode, TheSameBitsRunAfterRunAndInOtherStreams) {
  DecodeCase c{.batch = 2, .keys = 30000, .heads = 8, .kv_heads = 8, .head_dim = 64, .dtype = GetParam()};
  const DecodeInputs in(c);
  const KvCache cache = cache_on_gpu(in.k, in.v);
  for (const float tolerance : {0.0f, 0x1p-11f}) {
    c.tolerance = tolerance;
    const Tensor q = there(in.q), first = attention_decode(q, cache, c.options()).to(Device::cpu);
    for (int i = 0; i < 8; ++i) {
      EXPECT_TRUE(same_bits(attention_decode(q, cache, c.options()).to(Device::cpu), first));
    }
    cudaStream_t stream = nullptr;
    ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
    {
      const UseStream use(stream);
      const KvCache own = cache_on_gpu(in.k, in.v);
      EXPECT_TRUE(same_bits(attention_decode(there(in.q), own, c.options()).to(Device::cpu), first));
    }
    EXPECT_EQ(cudaStreamDestroy(stream), cudaSuccess);
  }
}

TEST_P(GpuDecode, SkipsWhatTheCpuSkips) {
  DecodeCase c{.keys = 50000, .heads = 8, .kv_heads = 8, .head_dim = 64, .dtype = GetParam(), .tolerance = 0x1p-11f};
  const DecodeInputs in(c);
  KvCache cpu(1, 8, 64);
  cpu.append(in.k.to(DType::float32), in.v.to(DType::float32));
  AttentionState on_cpu, on_gpu;
  attention_decode(in.q.to(DType::float32), cpu, c.options(), &on_cpu);
  attention_decode(there(in.q), cache_on_gpu(in.k, in.v), c.options(), &on_gpu);
  EXPECT_EQ(on_gpu.stats.blocks_total, on_cpu.stats.blocks_total);
  EXPECT_LT(on_gpu.stats.blocks_visited, on_gpu.stats.blocks_total / 2);
  EXPECT_LE(std::abs(on_gpu.stats.blocks_visited - on_cpu.stats.blocks_visited), on_cpu.stats.blocks_visited / 20 + 8);
}

TEST_P(GpuDecode, ValuesThatAreSkippedAreNotRead) {
  DecodeCase c{.keys = 20000, .heads = 1, .kv_heads = 1, .head_dim = 64, .dtype = GetParam(), .tolerance = 0x1p-11f};
  DecodeInputs in(c);
  AttentionOptions options = c.options();
  options.alibi_slopes = {0.02f};
  AttentionState state;
  const Tensor first = attention_decode(there(in.q), cache_on_gpu(in.k, in.v), options, &state).to(Device::cpu);
  const int64_t skipped = state.stats.blocks_total - state.stats.blocks_visited;
  ASSERT_GT(skipped, 200);
  in.v.slice(1, 0, skipped * 64).fill(std::numeric_limits<float>::quiet_NaN());
  EXPECT_TRUE(same_bits(attention_decode(there(in.q), cache_on_gpu(in.k, in.v), options).to(Device::cpu), first));
}

}  // namespace
}  // namespace alibi::test
