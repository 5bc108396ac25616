#include <gtest/gtest.h>

#include "alibi/attention.h"
#include "attention/decode/cases.h"
#include "attention/decode/kv_cache_norms.h"
#include "core/check.h"

namespace alibi::test {
namespace {

TEST(Decode, MatchesTheReferenceAtEveryLength) {
  for (int64_t keys = 1; keys <= 300; keys += keys < 135 ? 1 : 7) {
    expect_decodes({.keys = keys, .heads = 2, .kv_heads = 1, .head_dim = 20});
  }
}

TEST(Decode, MatchesTheReferenceAcrossBlocksAndUnits) {
  for (const int64_t keys : {511, 512, 513, 575, 577, 1023, 1025, 1600}) {
    expect_decodes({.keys = keys});
    expect_decodes({.keys = keys, .bias = Bias::none});
    expect_decodes({.keys = keys, .bias = Bias::buckets});
    expect_decodes({.keys = keys, .bias = Bias::by_distance});
    expect_decodes({.keys = keys, .tolerance = 0x1p-24f});
  }
}

TEST(Decode, MatchesTheReferenceOnEveryInstructionSet) {
  for_each_isa([] {
    for (const Bias bias : {Bias::none, Bias::linear, Bias::buckets, Bias::by_distance}) {
      for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16}) {
        for (const int64_t head_dim : {1, 40, 64, 256}) {
          expect_decodes(
              {.batch = 2, .keys = 70, .heads = 3, .kv_heads = 3, .head_dim = head_dim, .bias = bias, .dtype = dtype});
        }
      }
    }
  });
}

TEST(Decode, GroupedHeadsAndSeveralQueries) {
  for_each_isa([] {
    for (const int64_t group : {1, 3, 5, 70}) {
      for (const int64_t queries : {1, 3, 33}) {
        for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16}) {
          expect_decodes({.keys = 150, .queries = queries, .heads = 2 * group, .kv_heads = 2, .dtype = dtype});
        }
      }
    }
  });
}

TEST(Decode, WindowsOffsetsAndBothDirections) {
  for (const Bias bias : {Bias::none, Bias::linear, Bias::buckets, Bias::by_distance}) {
    for (const bool causal : {true, false}) {
      for (const int64_t window : {0, 1, 64, 100}) {
        for (const int64_t offset : {0, 1, 64, 150, 310, 500, -2, -40}) {
          for (const float tolerance : {0.0f, 0x1p-24f}) {
            expect_decodes({.keys = 300,
                            .queries = 3,
                            .bias = bias,
                            .causal = causal,
                            .window = window,
                            .offset = offset,
                            .tolerance = tolerance});
          }
        }
      }
    }
  }
}

TEST(Decode, Softcap) {
  for_each_isa([] {
    for (const float softcap : {0.5f, 3.0f, 30.0f}) {
      for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16}) {
        for (const float tolerance : {0.0f, 0x1p-24f}) {
          expect_decodes({.keys = 300,
                          .queries = 3,
                          .heads = 4,
                          .head_dim = 40,
                          .dtype = dtype,
                          .tolerance = tolerance,
                          .softcap = softcap});
        }
      }
    }
  });
}

TEST(Decode, Sinks) {
  constexpr float none = -std::numeric_limits<float>::infinity();
  for_each_isa([] {
    for (const std::vector<float>& sinks : {std::vector<float>{-2, 0, 3, none}, {30, 90, 300, 1e30f}}) {
      for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16}) {
        for (const float tolerance : {0.0f, 0x1p-24f}) {
          for (const int64_t keys : {1, 300, 1600}) {
            expect_decodes({.keys = keys,
                            .queries = std::min<int64_t>(keys, 3),
                            .heads = 4,
                            .dtype = dtype,
                            .tolerance = tolerance,
                            .sinks = sinks});
          }
        }
      }
    }
  });
}

TEST(Decode, MoreQueriesThanKeys) { expect_decodes({.keys = 3, .queries = 5}); }

TEST(Decode, AnEmptyCacheGivesZeros) {
  const KvCache cache(1, 2, 16);
  const DecodeCase c{.keys = 0};
  const DecodeInputs in(c);
  Tensor out = Tensor::empty(in.q.shape());
  out.fill(7);
  AttentionState state;
  attention_decode(in.q, cache, c.options(), out, &state);
  EXPECT_EQ(max_abs(doubles(out)), 0);
  for (const double lse : doubles(state.lse)) EXPECT_EQ(lse, -std::numeric_limits<double>::infinity());
}

TEST(Decode, OneSidedSlopes) {
  constexpr float closed = std::numeric_limits<float>::infinity();
  const DecodeCase c{.keys = 400, .queries = 2, .heads = 4, .kv_heads = 2, .causal = false, .offset = 170};
  const DecodeInputs in(c);
  const KvCache cache = filled_cache(in.k, in.v);
  for (const float tolerance : {0.0f, 0x1p-24f}) {
    AttentionOptions options = c.options();
    options.alibi_slopes = {0.5f, closed, 0.01f, 0.25f};
    options.alibi_slopes_after = {closed, 0.125f, 0.3f, 0.0f};
    std::vector<double> expected, lse;
    attention_reference(in.q, in.k, in.v, options, expected, &lse);
    options.tolerance = tolerance;
    Tensor out = Tensor::empty(in.q.shape());
    AttentionState state;
    attention_decode(in.q, cache, options, out, &state);
    EXPECT_TRUE(max_abs_diff(out, expected) <= 3e-6);
    EXPECT_TRUE(max_abs_diff(state.lse, lse) <= 3e-6);
  }
}

TEST(Decode, SlopesOfEachBatchEntry) {
  const DecodeCase c{.batch = 3, .keys = 100};
  const DecodeInputs in(c);
  const KvCache cache = filled_cache(in.k, in.v);
  AttentionOptions options = c.plain_options();
  options.alibi_slopes = {0.5f, 0.25f, 0.1f, 0.0f, 1.5f, 0.03f};
  std::vector<double> expected;
  attention_reference(in.q, in.k, in.v, options, expected);
  Tensor out = Tensor::empty(in.q.shape());
  attention_decode(in.q, cache, options, out);
  EXPECT_TRUE(max_abs_diff(out, expected) <= 3e-6);
}

TEST(Decode, ACacheMayBeNarrowerThanTheQueries) {
  const DecodeCase c{.keys = 150, .head_dim = 24};
  const DecodeInputs in(c);
  KvCache cache(1, 2, 24, DType::bfloat16);
  cache.append(in.k, in.v);
  std::vector<double> expected;
  const Tensor k = in.k.to(DType::bfloat16).to(DType::float32), v = in.v.to(DType::bfloat16).to(DType::float32);
  attention_reference(in.q, k, v, c.plain_options(), expected);
  Tensor out = Tensor::empty(in.q.shape());
  attention_decode(in.q, cache, c.options(), out);
  EXPECT_TRUE(max_abs_diff(out, expected) <= 3e-6);
}

TEST(Decode, WeightsAreRightAtAMillionKeys) {
  constexpr int64_t keys = 1 << 20, piece = 1 << 16;
  const int64_t places[] = {0, 1 << 10, keys / 2, keys - 2};
  const Tensor q = random_tensor({1, 1, 1, 4}, 1), k = random_tensor({1, piece, 1, 4}, 2);
  KvCache cache(1, 1, 4);
  cache.reserve(keys);
  for (int64_t first = 0; first < keys; first += piece) {
    Tensor v({1, piece, 1, 4});  // column d is one at place d, so that the output is those keys' weights
    for (int64_t d = 0; d < 4; ++d) {
      const int64_t row = places[d] - first;
      if (row >= 0 && row < piece) v.data<float>()[row * 4 + d] = 1;
    }
    cache.append(k, v);
  }
  for (const float slope : {0.0f, 0x1p-16f, 0x1p-14f}) {
    for (const float tolerance : {0.0f, 0x1p-24f}) {
      AttentionOptions options{.alibi_slopes = {slope}, .query_offset = keys - 1};
      std::vector<double> expected;
      attention_reference(q, cache.keys(), cache.values(), options, expected);
      options.tolerance = tolerance;
      Tensor out = Tensor::empty(q.shape());
      attention_decode(q, cache, options, out);
      for (size_t d = 0; d < 4; ++d) {
        const double weight = doubles(out)[d];
        const double allowed = 1e-6 * expected[d] + static_cast<double>(tolerance);
        EXPECT_TRUE(std::abs(weight - expected[d]) <= allowed)
            << "slope " << slope << " place " << places[d] << ": " << weight / expected[d] - 1;
      }
    }
  }
}

TEST(Decode, StridedQueriesAndOutput) {
  const DecodeCase c{.batch = 2, .keys = 90, .queries = 2, .head_dim = 16};
  const DecodeInputs in(c);
  const KvCache cache = filled_cache(in.k, in.v);
  Tensor wide_q({2, 2, 3, 20}), wide_out({2, 2, 3, 20});
  wide_out.fill(42);
  const auto narrow = [](const Tensor& wide) { return wide.slice(2, 0, 2).slice(3, 2, 18); };
  Tensor q = narrow(wide_q), out = narrow(wide_out);
  q.copy_from(in.q);
  attention_decode(q, cache, c.options(), out);
  std::vector<double> expected;
  attention_reference(in.q, in.k, in.v, c.plain_options(), expected);
  EXPECT_TRUE(max_abs_diff(out, expected) <= 3e-6);
  out.fill(42);
  EXPECT_EQ(max_abs_diff(wide_out, std::vector<double>(2 * 2 * 3 * 20, 42)), 0) << "wrote outside of the view";
}

TEST(Decode, SameBitsAtAnyThreadCount) {
  for (const float tolerance : {0.0f, 0x1p-24f}) {
    const DecodeCase c{.keys = 3000, .queries = 2, .heads = 8, .kv_heads = 2, .tolerance = tolerance};
    const DecodeInputs in(c);
    expect_same_bits_at_any_thread_count([&] {
      const KvCache cache = filled_cache(in.k, in.v);
      Tensor out = Tensor::empty(in.q.shape());
      AttentionState state;
      attention_decode(in.q, cache, c.options(), out, &state);
      return std::vector<Tensor>{out, state.lse};
    });
  }
}

TEST(Decode, UnseenKeysMayHoldAnything) {
  const DecodeCase c{.keys = 100, .queries = 2, .window = 30, .offset = 60};
  DecodeInputs in(c);
  std::vector<double> expected;
  attention_reference(in.q, in.k, in.v, c.options(), expected);
  for (const float poison : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    in.k.slice(1, 0, 31).fill(poison);
    in.v.slice(1, 0, 31).fill(poison);
    in.k.slice(1, 62, 100).fill(poison);
    in.v.slice(1, 62, 100).fill(poison);
    // Position 60 sees [31, 60], position 61 sees [32, 61]: only the second row may see key 61.
    const KvCache cache = filled_cache(in.k, in.v);
    Tensor out = Tensor::empty(in.q.shape());
    attention_decode(in.q, cache, c.options(), out);
    EXPECT_TRUE(max_abs_diff(out, expected) <= 3e-6);
  }
}

TEST(Decode, AKeyOfOneRowDoesNotReachTheRowBefore) {
  const DecodeCase c{.keys = 70, .queries = 2};
  DecodeInputs in(c);
  in.v.slice(1, 69, 70).fill(std::numeric_limits<float>::infinity());
  std::vector<double> expected;
  attention_reference(in.q, in.k, in.v, c.plain_options(), expected);
  const KvCache cache = filled_cache(in.k, in.v);
  Tensor out = Tensor::empty(in.q.shape());
  attention_decode(in.q, cache, c.options(), out);
  EXPECT_EQ(out.to_floats()[2 * 16], std::numeric_limits<float>::infinity());
  for (size_t i = 0; i < 2 * 16; ++i) EXPECT_TRUE(std::abs(doubles(out)[i] - expected[i]) <= 3e-6);
}

TEST(Decode, NotANumberStaysVisible) {
  const DecodeCase c{.keys = 70};
  DecodeInputs in(c);
  in.k.slice(1, 30, 31).fill(std::numeric_limits<float>::quiet_NaN());
  for (const float tolerance : {0.0f, 0x1p-24f}) {
    AttentionOptions options = c.options();
    options.tolerance = tolerance;
    const KvCache cache = filled_cache(in.k, in.v);
    Tensor out = Tensor::empty(in.q.shape());
    attention_decode(in.q, cache, options, out);
    EXPECT_TRUE(std::isnan(out.to_floats().front()));
  }
}

TEST(Decode, ErrorsNameTheArgument) {
  const KvCache cache = filled_cache(random_tensor({1, 10, 2, 16}, 1), random_tensor({1, 10, 2, 16}, 2));
  const Tensor q({1, 1, 2, 16});
  Tensor out({1, 1, 2, 16});
  const auto decode = [&](const Tensor& query, Tensor result, const AttentionOptions& options = {}) {
    attention_decode(query, cache, options, result);
  };
  expect_error([&] { decode({}, out); }, "[attention_decode] q");
  expect_error([&] { decode(Tensor({2, 1, 2, 16}), Tensor({2, 1, 2, 16})); }, "[attention_decode] k has batch 1");
  expect_error([&] { decode(Tensor({1, 1, 3, 16}), Tensor({1, 1, 3, 16})); }, "[attention_decode] k has 2 heads");
  expect_error([&] { decode(Tensor({1, 1, 2, 8}), Tensor({1, 1, 2, 8})); }, "head_dim");
  expect_error([&] { decode(q, Tensor({1, 2, 2, 16})); }, "[attention_decode] out");
  expect_error([&] { decode(q.to(DType::float16), out); }, "[attention_decode] out is float32");
  expect_error([&] { decode(q, out, {.dropout_p = 0.5f}); }, "dropout_p");
  expect_error([&] { decode(q, out, {.cu_seqlens_q = {0, 1}, .cu_seqlens_k = {0, 10}}); }, "cu_seqlens");
  expect_error([&] { decode(q, out, {.alibi_slopes = {0.5f}}); }, "alibi_slopes");
}

}  // namespace
}  // namespace alibi::test
