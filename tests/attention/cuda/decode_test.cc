// Cached decoding of CUDA's kernels in emulated lanes, through the public functions: against the reference in float64,
// and the skip rule against its statement.
#include <cmath>

#include "attention/cuda/emulated_device.h"
#include "attention/decode/cases.h"
#include "attention/decode/kv_cache_state.h"
#include "attention/kernel.h"
#include "core/random.h"

namespace alibi::kernels {
namespace {

using namespace test;

Tensor there(const Tensor& tensor) { return tensor.to(Device::cuda); }

/// A cache of the inputs on the device, appended in pieces and truncated in between.
KvCache cache_on_device(const Tensor& k, const Tensor& v, uint64_t seed = 1, const Tensor& gates = {}) {
  KvCache cache(k.size(0), k.size(2), k.size(3), k.dtype(), Device::cuda);
  const Tensor all_k = there(k), all_v = there(v);
  const core::Random random(seed);
  uint64_t draw = 0;
  while (cache.length() < k.size(1)) {
    const int64_t begin = cache.length(), left = k.size(1) - begin;
    const int64_t most = std::min<int64_t>(left, draw % 3 == 0 ? left : 70 + left / 8);
    const auto piece = 1 + static_cast<int64_t>(random.below(draw++, static_cast<uint64_t>(most)));
    const auto part = [&](const Tensor& of) { return of.slice(1, begin, begin + piece); };
    const auto append = [&](const Tensor& keys, const Tensor& values, float factor) {
      if (!gates.defined()) return cache.append(keys, values);
      Tensor of_keys = part(gates).clone();
      for (int64_t i = 0; i < of_keys.elements(); ++i) of_keys.data<float>()[i] *= factor;
      cache.append(keys, values, there(of_keys));
    };
    append(part(all_k), part(all_v), 1);
    if (draw % 4 == 1) {  // some are forgotten, and come again after others that were not meant to be there
      const auto max_dropped = static_cast<uint64_t>(std::min<int64_t>(cache.length(), 150));
      const int64_t kept = cache.length() - static_cast<int64_t>(random.below(draw++, max_dropped + 1));
      cache.truncate(kept);
      if (draw % 8 < 5) {
        Tensor wrong = part(all_k).clone();
        wrong.fill(7);
        append(wrong, wrong, 3);
        cache.truncate(kept);
      }
    }
  }
  return cache;
}

struct Decoded {
  Tensor out, lse;
  AttentionStats stats;
};

Decoded decode(const Tensor& q, const KvCache& cache, const AttentionOptions& options) {
  Tensor out = there(q).clone();
  out.fill(std::numeric_limits<float>::quiet_NaN());
  AttentionState state;
  attention_decode(there(q), cache, options, out, &state);
  return {out.to(Device::cpu), state.lse.to(Device::cpu), state.stats};
}

double unit_of(DType dtype) { return dtype == DType::bfloat16 ? 0x1p-8 : 0x1p-11; }

/// Two roundings: of the weights, and of the output.
void expect_right(const DecodeCase& c, uint64_t seed = 1) {
  SCOPED_TRACE(c.name());
  const EmulatedDevice device(seed % 2 == 0);
  const DecodeInputs in(c);
  const KvCache cache = cache_on_device(in.k, in.v, seed, c.log_decay());
  ASSERT_EQ(cache.length(), c.keys);
  const Decoded found = decode(in.q, cache, c.options());
  std::vector<double> expected, lse;
  attention_reference(in.q, in.k, in.v, c.plain_options(), expected, &lse);
  const double largest = std::max(1.0, max_abs(doubles(in.v)));
  const double error = max_abs_diff(found.out, expected), skipped = 2 * static_cast<double>(c.tolerance) * largest;
  EXPECT_TRUE(error <= 1.5 * unit_of(c.dtype) * (max_abs(expected) + 0.1) + skipped) << "differs by " << error;
  const std::vector<double> lse_found = doubles(found.lse);
  for (size_t i = 0; i < lse.size(); ++i) {
    if (lse_found[i] == lse[i]) continue;  // -infinity
    EXPECT_TRUE(std::abs(lse_found[i] - lse[i]) <=
                1e-5 + 1e-6 * std::abs(lse[i]) + 1.01 * static_cast<double>(c.tolerance))
        << "lse " << i << ": " << lse_found[i] << ", expected " << lse[i];
  }
}

/// Of every kind, small enough for the emulator.
DecodeCase random_case(uint64_t seed) {
  const core::Random random(seed);
  uint64_t draw = 0;
  const auto pick = [&](std::initializer_list<int64_t> of) { return of.begin()[random.below(draw++, of.size())]; };
  DecodeCase c{.batch = pick({1, 1, 2}), .keys = pick({1, 2, 15, 17, 63, 64, 65, 127, 129, 200, 333, 700})};
  c.queries = pick({1, 1, 1, 2, 3, 16});
  c.kv_heads = pick({1, 2, 3});
  c.heads = c.kv_heads * pick({1, 1, 2, 3, 8});
  c.head_dim = pick({8, 16, 32, 40, 64, 64, 96, 128, 128, 200, 256});
  c.bias = pick({0, 1, 1}) == 0 ? test::Bias::none : test::Bias::linear;
  c.dtype = seed % 2 == 0 ? DType::bfloat16 : DType::float16;
  c.causal = pick({0, 1, 1}) != 0;
  c.window = pick({0, 0, 1, 64, 100});
  if (pick({0, 0, 1}) != 0) c.offset = pick({0, 1, 64, 150, 320, -2});
  if (pick({0, 1}) != 0) c.tolerance = 0x1p-11f;
  if (seed % 3 == 0) c.sinks = random_tensor({c.heads}, seed, 3).to_floats();
  return c;
}

TEST(DecodeCuda, RandomCases) {
  for (uint64_t seed = 1; seed <= 60; ++seed) expect_right(random_case(seed), seed);
}

TEST(DecodeCuda, RandomCasesWithGates) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    DecodeCase c = random_case(seed);
    c.causal = true;
    c.gates = static_cast<Gates>(seed % 4);
    expect_right(c, seed);
  }
  // Many blocks: threads that sum ranges of them, and nodes of the second level.
  for (const Gates kind : {Gates::mild, Gates::sharp, Gates::documents}) {
    expect_right({.keys = 9000, .dtype = DType::bfloat16, .tolerance = 0x1p-11f, .gates = kind});
  }
}

TEST(DecodeCuda, CachesWithGates) {
  const EmulatedDevice device;
  const DecodeCase c{.batch = 2, .keys = 300, .dtype = DType::bfloat16, .gates = Gates::strong};
  const DecodeInputs in(c);
  const Tensor gates = c.log_decay();
  KvCache cache = cache_on_device(in.k, in.v, 1, gates);
  const Decoded expected = decode(in.q, cache, c.options());
  EXPECT_TRUE(same_bits(decode(in.q, cache.clone(), c.options()).out, expected.out));
  EXPECT_GT(cache.bytes(), cache_on_device(in.k, in.v).bytes());
  // Long chunks go by attention() over it.
  const Tensor q = there(random_tensor({2, 40, 2, 16}, 5, 1, DType::bfloat16));
  Tensor chunk = q.clone(), few = q.clone();
  cached_attention(q, cache, c.options(), chunk);
  attention_decode(q, cache, c.options(), few);
  EXPECT_TRUE(max_abs_diff(chunk, few) <= 0x1p-6);
  // Some gates or none, for the heads that there are; an empty cache forgets them.
  const Tensor k = there(in.k), v = there(in.v), on_device = there(gates);
  expect_error([&] { cache.append(k, v); }, "log_decay is not given, but the 300 keys of the cache have gates");
  expect_error([&] { cache.append(k, v, gates); }, "[kv_cache] log_decay is on 'cpu', but the cache is on 'cuda'");
  expect_error([&] { cache.append(k, v, there(Tensor({2, 300, 4}))); }, "log_decay has shape [2, 300, 4]");
  expect_error(
      [&] {
        attention_decode(there(random_tensor({2, 1, 4, 16}, 5, 1, DType::bfloat16)), cache);
      },
      "q has 4 heads, expected 2, those of the gates in the cache");
  expect_error([&] { attention_decode(there(in.q), cache, {.causal = false}); }, "attention is not causal");
  cache.truncate(0);
  cache.append(k, v);
  const Decoded plain = decode(in.q, cache, c.options());
  cache.truncate(0);
  cache.append(k, v, on_device);
  EXPECT_TRUE(same_bits(decode(in.q, cache, c.options()).out, expected.out));
  EXPECT_FALSE(same_bits(plain.out, expected.out));
}

TEST(DecodeCuda, EveryLengthAroundBlocksAndSplits) {
  for (const int64_t keys : {1, 2, 16, 63, 64, 65, 128, 191, 255, 256, 257, 512, 513, 1025}) {
    for (const float tolerance : {0.0f, 0x1p-11f}) {
      expect_right({.keys = keys, .dtype = DType::bfloat16, .tolerance = tolerance}, static_cast<uint64_t>(keys));
      expect_right(
          {.keys = keys, .queries = 3, .heads = 8, .head_dim = 64, .dtype = DType::float16, .tolerance = tolerance});
    }
  }
}

TEST(DecodeCuda, MoreRowsThanATileHas) {
  for (const int64_t queries : {1, 4, 16, 40}) {
    for (const int64_t group : {5, 16, 20}) {
      expect_right({.keys = 150, .queries = queries, .heads = 2 * group, .dtype = DType::bfloat16});
    }
  }
}

TEST(DecodeCuda, OneSidedSlopesAndThoseOfEachBatchEntry) {
  constexpr float closed = std::numeric_limits<float>::infinity();
  const EmulatedDevice device;
  DecodeCase c{.keys = 400, .queries = 2, .heads = 4, .causal = false, .offset = 170};
  c.dtype = DType::float16;
  const auto expect = [&](AttentionOptions options) {
    const DecodeInputs in(c);
    const KvCache cache = cache_on_device(in.k, in.v);
    std::vector<double> expected, lse;
    attention_reference(in.q, in.k, in.v, options, expected, &lse);
    for (const float tolerance : {0.0f, 0x1p-24f}) {
      options.tolerance = tolerance;
      const Decoded found = decode(in.q, cache, options);
      EXPECT_TRUE(max_abs_diff(found.out, expected) <= 2e-3);
      EXPECT_TRUE(max_abs_diff(found.lse, lse) <= 1e-5);
    }
  };
  AttentionOptions options = c.options();
  options.alibi_slopes = {0.5f, closed, 0.01f, 0.25f};
  options.alibi_slopes_after = {closed, 0.125f, 0.3f, 0.0f};
  expect(options);
  c.batch = 3;
  options.alibi_slopes = {0.5f, 0.25f, 0.1f, 0, 1.5f, 0.03f, 1e20f, 1e-20f, 3, 2, 1, 0.7f};
  options.alibi_slopes_after = {};
  expect(options);
}

TEST(DecodeCuda, QueriesFarBeyondTheKeysKeepTheirPrecision) {
  for (const int64_t offset : {int64_t{1000000}, int64_t{-1000000}, int64_t{1} << 35}) {
    DecodeCase c{.keys = 300, .dtype = DType::float16, .causal = offset > 0, .offset = offset};
    const EmulatedDevice device;
    const DecodeInputs in(c);
    const KvCache cache = cache_on_device(in.k, in.v);
    std::vector<double> expected, lse;
    attention_reference(in.q, in.k, in.v, c.plain_options(), expected, &lse);
    const Decoded found = decode(in.q, cache, c.options());
    EXPECT_TRUE(max_abs_diff(found.out, expected) <= 2e-3) << offset;
    EXPECT_TRUE(max_abs_diff(found.lse, lse) <= 1e-6 * max_abs(lse)) << offset;
  }
}

TEST(DecodeCuda, NoKeysGiveZeros) {
  const EmulatedDevice device;
  KvCache cache(1, 2, 16, DType::bfloat16, Device::cuda);
  const DecodeInputs in({.keys = 0, .dtype = DType::bfloat16});
  for (const float tolerance : {0.0f, 0x1p-11f}) {
    const Decoded found = decode(in.q, cache, {.alibi_slopes = slopes(2), .tolerance = tolerance});
    EXPECT_EQ(max_abs(doubles(found.out)), 0);
    EXPECT_EQ(found.lse.to_floats(), std::vector<float>(2, -std::numeric_limits<float>::infinity()));
    cache.append(there(random_tensor({1, 70, 2, 16}, 1)), there(random_tensor({1, 70, 2, 16}, 2)));
    cache.truncate(0);
  }
}

TEST(DecodeCuda, ACacheIsWhatWasAppended) {
  const EmulatedDevice device;
  const DecodeInputs in({.batch = 2, .keys = 300, .dtype = DType::bfloat16});
  KvCache cache = cache_on_device(in.k, in.v);
  EXPECT_EQ(cache.device(), Device::cuda);
  EXPECT_TRUE(same_bits(cache.keys().to(Device::cpu), in.k));
  EXPECT_TRUE(same_bits(cache.values().to(Device::cpu), in.v));
  EXPECT_GE(cache.bytes(), 2 * 2 * 300 * 2 * 16 * 2);
  const KvCache copy = cache.clone();
  cache.truncate(200);
  cache.append(cache.values().slice(1, 0, 30), cache.keys().slice(1, 0, 30));
  EXPECT_TRUE(same_bits(copy.keys().to(Device::cpu), in.k));
  EXPECT_TRUE(same_bits(cache.keys().slice(1, 200, 230).to(Device::cpu), in.v.slice(1, 0, 30).clone()));
  // Long chunks go by attention() over it.
  const Tensor q = there(random_tensor({2, 40, 2, 16}, 5, 1, DType::bfloat16));
  Tensor chunk = q.clone(), few = q.clone();
  cached_attention(q, copy, {.alibi_slopes = slopes(2)}, chunk);
  attention_decode(q, copy, {.alibi_slopes = slopes(2)}, few);
  EXPECT_TRUE(max_abs_diff(chunk, few) <= 0x1p-6);
  // Other types are rounded to that of the cache. Its capacity grows by a share of its size.
  int64_t moves = 0, room = 0;
  KvCache one(1, 1, 8, DType::float16, Device::cuda);
  for (int i = 0; i < 1000; ++i) {
    one.append(there(random_tensor({1, 1, 1, 8}, 1)), there(random_tensor({1, 1, 1, 8}, 1)));
    moves += one.capacity() != room ? 1 : 0;
    room = one.capacity();
  }
  EXPECT_LT(moves, 9);
  EXPECT_TRUE(
      same_bits(one.keys().slice(1, 999, 1000).to(Device::cpu), random_tensor({1, 1, 1, 8}, 1, 1, DType::float16)));
}

/// The tree of bounds against the norms of the keys: at least these and hardly more, after any changes of the cache.
TEST(DecodeCuda, BoundsAreThoseOfTheKeys) {
  const EmulatedDevice device;
  for (const int64_t keys : {1, 63, 64, 65, 1000, 1025, 17000}) {
    DecodeCase c{.keys = keys, .head_dim = 8, .dtype = DType::bfloat16};
    DecodeInputs in(c);
    const std::vector<double> k = doubles(in.k);
    const KvCache cache = cache_on_device(in.k, in.v, static_cast<uint64_t>(keys));
    const kernels::CachedBounds& bounds = core::state_of(cache).bounds;
    const std::vector<double> centres = doubles(bounds.centres), centre_norms = doubles(bounds.centre_norms);
    for (size_t head = 0; head < 2; ++head) {
      double length = 0;
      for (size_t d = 0; d < 8; ++d) length += std::pow(centres[head * 8 + d], 2);
      EXPECT_TRUE(keys >= 64 || length == 0);
      EXPECT_GE(centre_norms[head], std::sqrt(length));
      int64_t span = 64;
      for (const Tensor& level : bounds.levels) {
        const int64_t nodes = (keys + span - 1) / span;
        const std::vector<double> found = doubles(level.slice(1, 0, nodes));
        for (int64_t node = 0; node < nodes; ++node) {
          double norm = 0, radius = 0;
          for (int64_t j = node * span; j < std::min(keys, (node + 1) * span); ++j) {
            double squares = 0, distances = 0;
            for (size_t d = 0; d < 8; ++d) {
              const double x = k[(static_cast<size_t>(j) * 2 + head) * 8 + d];
              squares += x * x;
              distances += std::pow(x - centres[head * 8 + d], 2);
            }
            norm = std::max(norm, std::sqrt(squares));
            radius = std::max(radius, std::sqrt(distances));
          }
          const size_t at = (head * static_cast<size_t>(nodes) + static_cast<size_t>(node)) * 2;
          ASSERT_TRUE(found[at] >= norm && found[at] <= norm * (1 + 0x1p-14)) << keys << " keys, node " << node;
          ASSERT_TRUE(found[at + 1] >= radius && found[at + 1] <= radius * (1 + 0x1p-14)) << keys << " keys, " << node;
        }
        if (nodes == 1) break;
        span *= 16;
      }
    }
  }
}

TEST(DecodeCuda, WhatItDoesNotTakeIsRefused) {
  const auto make = [](int64_t head_dim, DType dtype) { KvCache(1, 2, head_dim, dtype, Device::cuda); };
  expect_error([&] { make(16, DType::bfloat16); }, "this build of alibi has no device 'cuda'");
  const EmulatedDevice device;
  expect_error([&] { make(16, DType::float32); },
               "[kv_cache] dtype is float32, expected bfloat16 or float16 on 'cuda'");
  expect_error([&] { make(20, DType::bfloat16); }, "[kv_cache] head_dim is 20, expected a multiple of 8 up to 256");
  expect_error([&] { make(264, DType::bfloat16); }, "[kv_cache] head_dim is 264");
  const DecodeInputs in({.keys = 10, .dtype = DType::bfloat16});
  KvCache cache = cache_on_device(in.k, in.v);
  expect_error([&] { cache.append(in.k, in.v); }, "[kv_cache] k is on 'cpu', but the cache is on 'cuda'");
  EXPECT_EQ(cache.length(), 10);
  expect_error([&] { cache.fork(); }, "[kv_cache] fork() needs a cache in the CPU's memory");
  const std::vector<int64_t> begins = {0, 0};
  expect_error([&] { cache.evict(begins, 0); }, "[kv_cache] evict() needs a cache in the CPU's memory");
  expect_error([&] { evicted_share(in.q, cache, {}, in.q); }, "evicted_share() needs a cache in the CPU's memory");
  expect_error([&] { attention_decode(in.q, cache); }, "[attention_decode] k is on 'cuda', but q is on 'cpu'");
  expect_error([&] { attention_decode(there(in.q).to(DType::float16), cache); }, "[attention_decode] k is bfloat16");
  expect_error([&] { attention_decode(there(in.q), cache, {.dropout_p = 0.5f}); }, "dropout_p");
  AttentionOptions buckets;
  buckets.buckets = BucketedBias{random_tensor({32, 2}, 5), 128};
  expect_error([&] { attention_decode(there(in.q), cache, buckets); }, "the bias is a table");
  const Tensor wide = there(random_tensor({1, 1, 2, 20}, 1, 1, DType::bfloat16)).slice(3, 0, 16);
  expect_error([&] { attention_decode(wide, cache); }, "q has rows that do not begin at");
}

TEST(DecodeCuda, TheSameBitsInAnyOrder) {
  DecodeCase c{.keys = 900, .queries = 2, .heads = 8, .kv_heads = 2, .head_dim = 64, .dtype = DType::bfloat16};
  const DecodeInputs in(c);
  for (const float tolerance : {0.0f, 0x1p-11f}) {
    c.tolerance = tolerance;
    std::vector<Decoded> found;
    for (const bool backwards : {false, true}) {
      const EmulatedDevice device(backwards);
      KvCache cache(1, 2, 64, c.dtype, Device::cuda);
      cache.append(there(in.k), there(in.v));
      found.push_back(decode(in.q, cache, c.options()));
    }
    EXPECT_TRUE(same_bits(found[0].out, found[1].out));
    EXPECT_TRUE(same_bits(found[0].lse, found[1].lse));
  }
}

TEST(DecodeCuda, OutMayBeTheQueries) {
  const EmulatedDevice device;
  const DecodeCase c{.keys = 300, .dtype = DType::bfloat16, .tolerance = 0x1p-11f};
  const DecodeInputs in(c);
  const KvCache cache = cache_on_device(in.k, in.v);
  const Decoded expected = decode(in.q, cache, c.options());
  Tensor both = there(in.q).clone();
  attention_decode(both, cache, c.options(), both);
  EXPECT_TRUE(same_bits(both.to(Device::cpu), expected.out));
}

}  // namespace
}  // namespace alibi::kernels
