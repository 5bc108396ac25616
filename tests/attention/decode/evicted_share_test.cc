// A cache whose heads have evicted their oldest keys: attention over the others, and the bound on the evicted ones.
#include <gtest/gtest.h>

#include <cmath>

#include "alibi/kv_cache.h"
#include "attention/decode/evicted_keys.h"
#include "attention/decode/kv_cache_state.h"
#include "testing.h"

namespace alibi::test {
namespace {

constexpr int64_t batch = 2, kv_heads = 3, heads = 6, head_dim = 20;

struct EvictedCache {
  EvictedCache(int64_t keys, std::vector<int64_t> begins, float scale, DType dtype = DType::float32)
      : k(random_tensor({batch, keys, kv_heads, head_dim}, 1, scale, dtype)),
        v(random_tensor({batch, keys, kv_heads, head_dim}, 2, 1, dtype)),
        cache(batch, kv_heads, head_dim, dtype) {
    cache.append(k, v);
    cache.evict(begins, 10);
  }
  Tensor k, v;
  KvCache cache;
};

/// attention_reference() of the last queries over the keys of each head from its beginning on.
struct ExpectedLeft {
  std::vector<double> out, lse;  // [batch, queries, heads, head_dim], [batch, heads, queries]
};
ExpectedLeft reference_of_left(const Tensor& q, const Tensor& k, const Tensor& v, const KvCache* cache,
                               AttentionOptions options) {
  const int64_t queries = q.size(1), keys = k.size(1), group = heads / kv_heads;
  ExpectedLeft all{std::vector<double>(static_cast<size_t>(q.elements())),
                   std::vector<double>(static_cast<size_t>(batch * heads * queries))};
  const std::vector<float> slopes = options.alibi_slopes;
  const Tensor table = options.bias_by_distance.value_or(Tensor());
  for (int64_t h = 0; h < heads; ++h) {
    const int64_t begin = cache != nullptr ? cache->begin(h / group) : 0;
    const auto part = [&](const Tensor& rows) { return rows.slice(1, begin, keys).slice(2, h / group, h / group + 1); };
    if (!slopes.empty()) options.alibi_slopes = {slopes[static_cast<size_t>(h)]};
    if (table.defined()) options.bias_by_distance = table.slice(1, h, h + 1).clone();
    options.query_offset = keys - queries - begin;
    std::vector<double> out, lse;
    attention_reference(q.slice(2, h, h + 1).clone(), part(k).clone(), part(v).clone(), options, out, &lse);
    for (int64_t b = 0; b < batch; ++b) {
      for (int64_t i = 0; i < queries; ++i) {
        all.lse[static_cast<size_t>((b * heads + h) * queries + i)] = lse[static_cast<size_t>(b * queries + i)];
        for (int64_t d = 0; d < head_dim; ++d) {
          all.out[static_cast<size_t>(((b * queries + i) * heads + h) * head_dim + d)] =
              out[static_cast<size_t>((b * queries + i) * head_dim + d)];
        }
      }
    }
  }
  return all;
}

/// A bias that falls as a power of the distance, another for each head.
AttentionOptions falling_table() {
  Tensor table({700, heads});
  for (int64_t i = 0; i < table.elements(); ++i) {
    table.data<float>()[i] = -static_cast<float>(i % heads + 1) * std::log1p(static_cast<float>(i / heads));
  }
  return {.bias_by_distance = table};
}

TEST(KvCacheEviction, AttentionReadsWhatIsLeft) {
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16}) {
    const AttentionOptions options =
        dtype == DType::bfloat16 ? falling_table() : AttentionOptions{.alibi_slopes = slopes(heads)};
    for (const std::vector<int64_t>& begins :
         {std::vector<int64_t>{0, 130, 700}, {64, 64, 512}, {1000, 999, 0}, {512, 512, 512}}) {
      EvictedCache some(1000, begins, 1, dtype);
      const double tolerance = dtype == DType::float32 ? 2e-5 : 2e-2;
      for (const int64_t more : {0, 1, 300}) {
        const Tensor k = random_tensor({batch, more, kv_heads, head_dim}, 5, 1, dtype);
        some.cache.append(k, k);
        Tensor all_k({batch, some.k.size(1) + more, kv_heads, head_dim}, dtype), all_v(all_k.shape(), dtype);
        for (auto [all, old] : {std::pair{&all_k, &some.k}, {&all_v, &some.v}}) {
          all->slice(1, 0, old->size(1)).copy_from(*old);
          if (more > 0) all->slice(1, old->size(1), old->size(1) + more).copy_from(k);
          *old = all->clone();
        }
        for (const int64_t queries : {1, 3, 65}) {
          if (some.k.size(1) - queries < 1000) continue;  // queries that stand before what was evicted
          const Tensor q = random_tensor({batch, queries, heads, head_dim}, 3, 1, dtype);
          const ExpectedLeft wanted = reference_of_left(q, some.k, some.v, &some.cache, options);
          AttentionState few, many;
          Tensor out(q.shape(), dtype);
          attention_decode(q, some.cache, options, out, &few);
          EXPECT_TRUE(max_abs_diff(out, wanted.out) <= tolerance) << max_abs_diff(out, wanted.out);
          EXPECT_TRUE(max_abs_diff(few.lse, wanted.lse) <= tolerance);
          cached_attention(q, some.cache, options, out, &many);
          EXPECT_TRUE(max_abs_diff(out, wanted.out) <= tolerance) << max_abs_diff(out, wanted.out);
          EXPECT_TRUE(max_abs_diff(many.lse, wanted.lse) <= tolerance);
        }
      }
    }
  }
}

TEST(KvCacheEviction, GivesMemoryBackAndGrowsAgain) {
  EvictedCache some(3000, {0, 0, 0}, 1);
  const int64_t whole = some.cache.bytes();
  some.cache.evict(std::vector<int64_t>{2900, 2900, 1500}, 64);
  EXPECT_EQ(some.cache.begin(0), 2880) << "the block of 2900 is kept";
  EXPECT_EQ(some.cache.begin(2), 1472);
  EXPECT_LT(some.cache.bytes(), whole / 3);
  some.cache.evict(std::vector<int64_t>{0, 0, 0}, 0);
  EXPECT_EQ(some.cache.begin(0), 2880) << "nothing comes back";
  KvCache copy = some.cache.clone();
  const Tensor k = random_tensor({batch, 200, kv_heads, head_dim}, 5);
  some.cache.append(k, k);
  copy.append(k.slice(1, 0, 77), k.slice(1, 0, 77));
  copy.append(k.slice(1, 77, 200), k.slice(1, 77, 200));
  const Tensor q = random_tensor({batch, 1, heads, head_dim}, 3);
  const AttentionOptions options{.alibi_slopes = slopes(heads), .tolerance = 0x1p-24f};
  const Tensor expected = attention_decode(q, some.cache, options);
  EXPECT_TRUE(same_bits(attention_decode(q, copy, options), expected));
  copy.truncate(2950);
  const Tensor last = some.k.slice(1, 2950, 3000), last_v = some.v.slice(1, 2950, 3000);
  copy.append(last, last_v);
  copy.append(k, k);
  EXPECT_TRUE(same_bits(attention_decode(q, copy, options), expected));
}

TEST(KvCacheEviction, TheBoundHoldsAndIsWorthSomething) {
  for (const float scale : {0.0f, 0.3f, 1.0f, 3.0f, 10.0f}) {
    for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16}) {
      EvictedCache some(1000, {960, 800, 500}, scale, dtype);
      for (const int64_t queries : {1, 20}) {
        const Tensor q = random_tensor({batch, queries, heads, head_dim}, 3, 1, dtype);
        for (const bool is_table : {false, true}) {
          AttentionOptions options = is_table ? falling_table() : AttentionOptions{.alibi_slopes = slopes(heads)};
          options.query_offset = 1000 - queries;
          AttentionState state;
          attention_decode(q, some.cache, options, &state);
          const std::vector<double> kept = reference_of_left(q, some.k, some.v, &some.cache, options).lse;
          const std::vector<double> whole = reference_of_left(q, some.k, some.v, nullptr, options).lse;
          double worst = 0;
          for (size_t i = 0; i < kept.size(); ++i) worst = std::max(worst, -std::expm1(kept[i] - whole[i]));
          const double bound = evicted_share(q, some.cache, options, state.lse);
          EXPECT_GE(bound, worst) << "scale " << scale << " queries " << queries;
          EXPECT_LE(bound, 1.0);
          // With equal scores only distances differ, which the bound counts exactly.
          EXPECT_TRUE(is_table || scale > 0 || dtype == DType::bfloat16 || std::abs(bound / worst - 1) < 1e-2);
          EXPECT_GT(worst, 0);
        }
      }
    }
  }
  EvictedCache far(5000, {4000, 4000, 4000}, 1);
  const Tensor q = random_tensor({batch, 1, heads, head_dim}, 3);
  const AttentionOptions steep{.alibi_slopes = slopes(heads, 2)};
  AttentionState state;
  attention_decode(q, far.cache, steep, &state);
  EXPECT_LT(evicted_share(q, far.cache, steep, state.lse), 1e-60);
  EXPECT_EQ(evicted_share(q, EvictedCache(5000, {0, 0, 0}, 1).cache, steep, state.lse), 0);
  // A key whose norm is not finite may have any weight.
  Tensor k = random_tensor({batch, 100, kv_heads, head_dim}, 1);
  k.data<float>()[3] = std::numeric_limits<float>::infinity();
  KvCache damaged(batch, kv_heads, head_dim);
  damaged.append(k, k);
  damaged.evict(std::vector<int64_t>{64, 64, 64}, 0);
  attention_decode(q, damaged, steep, &state);
  EXPECT_EQ(evicted_share(q, damaged, steep, state.lse), 1);
}

/// With equal scores the bound exceeds the share only by its slack. The log-sum-exp is rounded up or down.
TEST(KvCacheEviction, TheBoundHoldsWhateverTheRounding) {
  for (const float slope : {0.001f, 0.0123f, 0.05f}) {
    for (int64_t keys = 200; keys < 1000; keys += 37) {
      KvCache one(1, 1, head_dim);
      const Tensor zeros({1, keys, 1, head_dim}), q({1, 1, 1, head_dim});
      one.append(zeros, zeros);
      one.evict(std::vector<int64_t>{128}, 0);
      const AttentionOptions options{.alibi_slopes = {slope}};
      AttentionState state;
      attention_decode(q, one, options, &state);
      long double evicted = 0, kept = 0;
      for (int64_t j = 0; j < keys; ++j) {
        const auto distance = static_cast<long double>(keys - 1 - j);
        (j < 128 ? evicted : kept) += std::exp(-static_cast<long double>(slope) * distance);
      }
      EXPECT_GE(static_cast<long double>(evicted_share(q, one, options, state.lse)), evicted / (evicted + kept))
          << slope << " " << keys;
    }
  }
}

TEST(EvictedKeys, FewStretchesBoundAMillionKeys) {
  kernels::EvictedKeys evicted;
  const auto norm = [](int64_t key) { return key == 70 * 64 ? 9.0f : 1 + static_cast<float>(key % 640) / 640; };
  constexpr int64_t keys = 1 << 20, block = 64;
  for (int64_t begin = 0; begin < keys; begin += block) evicted.add({begin, begin + block, norm(begin)});
  EXPECT_EQ(evicted.longest(), 9);
  EXPECT_LE(evicted.bytes(), 2048);
  for (const float slope : {0.0f, 0x1p-16f, 0x1p-8f, 0.5f}) {
    double exact = 0;
    for (int64_t begin = 0; begin < keys; begin += block) {
      for (int64_t i = begin; i < begin + block; ++i) {
        exact += std::exp(2.0 * static_cast<double>(norm(begin)) -
                          static_cast<double>(slope) * static_cast<double>(keys + 10 - i));
      }
    }
    const kernels::LinearBias bias(slope, slope, true);
    const double bound = evicted.log_weight(2, 0, bias, keys + 10, kernels::Roundings());
    EXPECT_GE(bound, std::log(exact));
    EXPECT_TRUE(slope < 0x1p-10f || bound <= std::log(exact) + 2) << "the long key is far";
  }
}

TEST(KvCacheEviction, ErrorsLeaveItAsItWas) {
  EvictedCache some(1000, {0, 200, 640}, 1);
  const std::vector<int64_t> two(2), beyond{0, 0, 1001}, negative{0, -1, 0};
  expect_error([&] { some.cache.evict(two, 0); }, "2 first keys, expected one for each of 3 heads");
  expect_error([&] { some.cache.evict(beyond, 0); }, "first key 1001 for head 2");
  expect_error([&] { some.cache.evict(negative, 0); }, "first key -1 for head 1");
  expect_error([&] { some.cache.evict(std::vector<int64_t>(3), -1); }, "would leave -1");
  expect_error([&] { some.cache.truncate(639); }, "evicted the keys before 640");
  expect_error([&] { some.cache.keys(); }, "evicted");
  expect_error([&] { some.cache.begin(3); }, "kv_head is 3");
  Tensor out({batch, 400, heads, head_dim});
  expect_error([&] { cached_attention(Tensor(out.shape()), some.cache, {}, out); }, "keys before 640 were evicted");
  EXPECT_EQ(some.cache.length(), 1000);
}

}  // namespace
}  // namespace alibi::test
