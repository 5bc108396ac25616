#include "alibi/kv_cache.h"

#include <gtest/gtest.h>

#include "attention/decode/kv_cache_state.h"
#include "testing.h"

namespace alibi::test {
namespace {

TEST(KvCache, GrowsPastEveryCapacity) {
  KvCache cache(2, 3, 5);
  const Tensor k = random_tensor({2, 1000, 3, 5}, 1), v = random_tensor({2, 1000, 3, 5}, 2);
  int64_t growths = 0, capacity = 0;
  for (int64_t i = 0; i < 1000; ++i) {
    cache.append(k.slice(1, i, i + 1), v.slice(1, i, i + 1));
    if (cache.capacity() != capacity) ++growths;
    capacity = cache.capacity();
    ASSERT_EQ(cache.length(), i + 1);
    ASSERT_GE(capacity, cache.length());
  }
  EXPECT_LE(growths, 10) << "grows geometrically";
  EXPECT_TRUE(same_bits(cache.keys(), k));
  EXPECT_TRUE(same_bits(cache.values(), v));
}

TEST(KvCache, TakesAnyStridesAndTypes) {
  const Tensor wide = random_tensor({2, 70, 4, 24}, 3);
  const Tensor k = wide.slice(2, 1, 3).slice(3, 0, 20), v = wide.slice(2, 2, 4).slice(3, 4, 24);
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16}) {
    KvCache cache(2, 2, 20, dtype);
    cache.append(k, v);
    cache.append(k.to(DType::bfloat16), v);
    EXPECT_TRUE(same_bits(cache.keys().slice(1, 0, 70), k.to(dtype)));
    EXPECT_TRUE(same_bits(cache.keys().slice(1, 70, 140), k.to(DType::bfloat16).to(dtype)));
    EXPECT_TRUE(same_bits(cache.values().slice(1, 70, 140), v.to(dtype)));
  }
}

/// At every level a tree is a close upper bound of the keys' distances from zero or from their head's centre.
void expect_distances(const KvCache& cache, const kernels::NormTree& tree, bool centred) {
  const std::vector<double> keys = doubles(cache.keys());
  const int64_t dim = cache.head_dim();
  for (int64_t head = 0; head < cache.batch() * cache.kv_heads(); ++head) {
    const float* centre = core::state_of(cache).centre(head);
    for (int level = 0; level < tree.levels(); ++level) {
      const int64_t span = kernels::NormTree::span(level);
      for (int64_t node = 0; node * span < cache.length(); ++node) {
        double longest = 0;
        for (int64_t j = node * span; j < std::min((node + 1) * span, cache.length()); ++j) {
          const int64_t b = head / cache.kv_heads(), h = head % cache.kv_heads();
          double sum = 0;
          for (int64_t d = 0; d < dim; ++d) {
            const double x = keys[static_cast<size_t>(((b * cache.length() + j) * cache.kv_heads() + h) * dim + d)];
            const double from = x - (centred ? static_cast<double>(centre[d]) : 0);
            sum += from * from;
          }
          longest = std::max(longest, std::sqrt(sum));
        }
        const auto bound = static_cast<double>(tree.at(head, level, node));
        ASSERT_TRUE(bound >= longest && bound <= longest * (1 + 1e-6)) << "level " << level << " node " << node;
      }
    }
  }
}

void expect_norms(const KvCache& cache) {
  expect_distances(cache, core::state_of(cache).norms, false);
  expect_distances(cache, core::state_of(cache).radii, true);
}

TEST(KvCache, KeysAreMeasuredFromWhatTheFirstHaveInCommon) {
  Tensor k = random_tensor({2, 500, 2, 8}, 1);
  for (int64_t i = 0; i < k.elements(); ++i) k.data<float>()[i] += 3;
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16}) {
    KvCache whole(2, 2, 8, dtype), pieces(2, 2, 8, dtype);
    whole.append(k, k);
    expect_norms(whole);
    EXPECT_LT(core::state_of(whole).radii.at(0, 0, 0), core::state_of(whole).norms.at(0, 0, 0) / 1.5f);
    int64_t begin = 0;
    for (const int64_t end : {40, 63, 64, 65, 500}) {
      pieces.append(k.slice(1, begin, end), k.slice(1, begin, end));
      begin = end;
      expect_norms(pieces);
      EXPECT_EQ(core::state_of(pieces).centres == core::state_of(whole).centres, end >= 64) << end;
    }
    pieces.truncate(64);
    EXPECT_EQ(core::state_of(pieces).centres, core::state_of(whole).centres);
    pieces.truncate(63);
    EXPECT_EQ(core::state_of(pieces).centres, std::vector<float>(core::state_of(pieces).centres.size(), 0.0f));
    pieces.append(k.slice(1, 63, 500), k.slice(1, 63, 500));
    expect_norms(pieces);
    EXPECT_EQ(core::state_of(pieces).centres, core::state_of(whole).centres);
  }
}

TEST(KvCache, KeepsTheNormsOfItsKeys) {
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16}) {
    KvCache cache(2, 2, 8, dtype);
    const Tensor k = random_tensor({2, 3000, 2, 8}, 1), v = random_tensor({2, 3000, 2, 8}, 2);
    int64_t begin = 0;
    for (const int64_t end : {1, 63, 64, 65, 130, 1023, 1024, 1025, 2500, 3000}) {
      cache.append(k.slice(1, begin, end), v.slice(1, begin, end));
      begin = end;
      expect_norms(cache);
    }
    for (const int64_t end : {2999, 1025, 1024, 70, 64, 1}) {
      cache.truncate(end);
      EXPECT_EQ(cache.length(), end);
      expect_norms(cache);
    }
    cache.append(k.slice(1, 1, 400), v.slice(1, 1, 400));
    expect_norms(cache);
    EXPECT_TRUE(same_bits(cache.keys(), k.slice(1, 0, 400).to(dtype)));
    cache.truncate(0);
    EXPECT_EQ(cache.length(), 0);
    cache.append(k.slice(1, 0, 5), v.slice(1, 0, 5));
    expect_norms(cache);
  }
}

TEST(KvCache, TheNewestKeyMayBeTheLongest) {
  KvCache cache(1, 2, 8);
  const Tensor k({1, 2100, 2, 8});
  for (int64_t j = 0; j < 2100; ++j) k.slice(1, j, j + 1).fill(1 + static_cast<float>(j));
  int64_t begin = 0;
  for (const int64_t end : {1, 2, 63, 64, 65, 1023, 1024, 1087, 1088, 1089, 2047, 2048, 2099, 2100}) {
    cache.append(k.slice(1, begin, end), k.slice(1, begin, end));
    begin = end;
    expect_norms(cache);
  }
}

TEST(KvCache, ACloneIsItsOwn) {
  KvCache cache(1, 1, 4);
  const Tensor k = random_tensor({1, 10, 1, 4}, 1);
  cache.append(k, k);
  KvCache copy = cache.clone();
  copy.truncate(3);
  copy.append(random_tensor({1, 7, 1, 4}, 2), random_tensor({1, 7, 1, 4}, 3));
  EXPECT_TRUE(same_bits(cache.keys(), k));
  EXPECT_FALSE(same_bits(copy.keys(), k));
}

TEST(KvCache, ReservesOnce) {
  KvCache cache(1, 2, 4);
  cache.reserve(1000);
  const int64_t capacity = cache.capacity();
  EXPECT_GE(capacity, 1000);
  const Tensor k = random_tensor({1, 1000, 2, 4}, 1);
  cache.append(k, k);
  EXPECT_EQ(cache.capacity(), capacity);
  EXPECT_GE(cache.bytes(), 2 * 1000 * 2 * 4 * 4);
}

TEST(KvCache, ErrorsLeaveItAsItWas) {
  expect_error([] { KvCache(0, 1, 1); }, "batch is 0");
  expect_error([] { KvCache(1, -1, 1); }, "kv_heads is -1");
  expect_error([] { KvCache(1, 1, 0); }, "head_dim is 0");
  expect_error([] { KvCache(1, 1, 1, DType::int32); }, "dtype is int32");
  KvCache cache(1, 2, 4);
  const Tensor k = random_tensor({1, 3, 2, 4}, 1);
  cache.append(k, k);
  expect_error([&] { cache.append({}, k); }, "[kv_cache] k");
  expect_error([&] { cache.append(k, Tensor({1, 2, 2, 4})); }, "v has length 2, expected 3");
  expect_error([&] { cache.append(k, Tensor({1, 3, 1, 4})); }, "[kv_cache] v has shape");
  expect_error([&] { cache.append(Tensor({1, 3, 2, 4}, DType::int32), k); }, "[kv_cache] k is int32");
  expect_error([&] { cache.truncate(4); }, "truncate(4)");
  expect_error([&] { cache.reserve(-1); }, "reserve(-1)");
  expect_error([&] { cache.reserve(int64_t{1} << 40); }, "reserve(");
  EXPECT_TRUE(same_bits(cache.keys(), k));
}

}  // namespace
}  // namespace alibi::test
