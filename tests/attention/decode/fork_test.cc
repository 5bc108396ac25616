// Forks of a cache: what they share and write, and that results do not change.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <optional>
#include <thread>
#include <vector>

#include "alibi/kv_cache.h"
#include "alibi/runtime.h"
#include "attention/decode/kv_cache_state.h"
#include "testing.h"

namespace alibi::test {
namespace {

constexpr int64_t fork_heads = 2, fork_dim = 24;

void append(KvCache& cache, int64_t keys, uint64_t seed) {
  cache.append(random_tensor({1, keys, fork_heads, fork_dim}, seed),
               random_tensor({1, keys, fork_heads, fork_dim}, seed + 1000));
}

/// Decoding reads both the same way: bits of the result, and which blocks were visited.
void expect_same(const KvCache& found, const KvCache& expected) {
  ASSERT_EQ(found.length(), expected.length());
  const Tensor q = random_tensor({1, 3, 2 * fork_heads, fork_dim}, 77);
  for (const float tolerance : {0.0f, 0x1p-24f}) {
    AttentionOptions options;
    options.alibi_slopes = slopes(2 * fork_heads, 4);
    options.tolerance = tolerance;
    AttentionState of_found, of_expected;
    Tensor a({1, 3, 2 * fork_heads, fork_dim}), b(a.shape());
    attention_decode(q, found, options, a, &of_found);
    attention_decode(q, expected, options, b, &of_expected);
    EXPECT_TRUE(same_bits(a, b));
    EXPECT_TRUE(same_bits(of_found.lse, of_expected.lse));
    EXPECT_EQ(of_found.stats.blocks_visited, of_expected.stats.blocks_visited);
  }
}

class Fork : public testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, Fork, testing::Values(DType::float32, DType::bfloat16, DType::float16),
                         [](const auto& type) { return std::string(name_of(type.param)); });

TEST_P(Fork, HasTheBitsOfAClone) {
  // Less than a block; blocks that end where the fork is made or not; before and after there is a centre.
  for (const int64_t length : {0, 3, 63, 64, 65, 128, 1000, 1600}) {
    SCOPED_TRACE(length);
    KvCache cache(1, fork_heads, fork_dim, GetParam());
    if (length > 0) append(cache, length, 1);
    KvCache fork = cache.fork(), clone = cache.clone();
    if (length > 0) expect_same(fork, clone);
    for (const int64_t more : {1, 70, 900}) {
      append(fork, more, 3);
      append(clone, more, 3);
      expect_same(fork, clone);
    }
    // A fork of a fork; both continue.
    KvCache second = fork.fork();
    append(second, 5, 5);
    append(fork, 5, 6);
    append(clone, 5, 6);
    expect_same(fork, clone);
    // Truncates into the shared keys, to the beginning of a block and inside of one, and continues from there.
    for (const int64_t back : {length + 3, length, length / 64 * 64, length - 1, length / 2, int64_t{0}}) {
      if (back < 0 || back > fork.length()) continue;
      fork.truncate(back);
      clone.truncate(back);
      if (back > 0) expect_same(fork, clone);
      append(fork, 2, 7);
      append(clone, 2, 7);
      expect_same(fork, clone);
    }
    append(fork, 300, 8);
    append(clone, 300, 8);
    fork.own();
    EXPECT_EQ(fork.shared_bytes(), 0);
    EXPECT_TRUE(same_bits(fork.keys(), clone.keys()));
    EXPECT_TRUE(same_bits(fork.values(), clone.values()));
  }
}

TEST_P(Fork, IsNotChangedByTheOthers) {
  KvCache cache(1, fork_heads, fork_dim, GetParam());
  append(cache, 200, 1);
  cache.reserve(1000);  // so that what is appended goes where the forks read, if nobody looks
  KvCache fork = cache.fork();
  const KvCache clone = cache.clone();
  append(cache, 10, 2);
  expect_same(fork, clone);
  cache.truncate(100);
  append(cache, 150, 3);
  expect_same(fork, clone);
  cache.truncate(0);
  append(cache, 250, 4);
  expect_same(fork, clone);
  KvCache other = fork.fork();
  fork.truncate(30);
  append(fork, 170, 5);
  expect_same(other, clone);
  cache = KvCache(1, fork_heads, fork_dim);  // what it held is kept by who reads it
  expect_same(other, clone);
}

TEST_P(Fork, HoldsWhatIsSharedOnce) {
  KvCache cache(1, fork_heads, fork_dim, GetParam());
  append(cache, 64 * 100 + 5, 1);
  const int64_t before = tensor_bytes(), of_cache = cache.bytes();
  const int64_t keys = 2 * 64 * 100 * fork_heads * 32 * static_cast<int64_t>(size_of(GetParam()));
  std::vector<KvCache> forks;
  for (int i = 0; i < 8; ++i) {
    forks.push_back(cache.fork());
    append(forks.back(), 20, 2);
    EXPECT_GE(forks.back().shared_bytes(), keys);
    EXPECT_GE(forks.back().bytes(), of_cache - keys / 50);
  }
  EXPECT_EQ(cache.shared_bytes(), 0);
  EXPECT_LE(tensor_bytes() - before, 8 * keys / 50) << "a block of each is its own";
  KvCache owned = forks.back().fork();
  owned.own();
  EXPECT_GE(tensor_bytes() - before, keys);
}

TEST_P(Fork, ThreadsMakeAndUseThemAtTheSameTime) {
  KvCache made(1, fork_heads, fork_dim, GetParam());
  append(made, 300, 1);
  const KvCache& cache = made;
  std::vector<std::optional<KvCache>> forks(4);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < forks.size(); ++i) {
    threads.emplace_back([&cache, &fork = forks[i], i] {
      fork.emplace(cache.fork());
      for (int key = 0; key < 100; ++key) append(*fork, 1, 10 * i + 7);
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < forks.size(); ++i) {
    KvCache clone = cache.clone();
    for (int key = 0; key < 100; ++key) append(clone, 1, 10 * i + 7);
    expect_same(*forks[i], clone);
  }
}

TEST(ForkErrors, OneInTwoPlacesIsNoView) {
  KvCache cache(1, fork_heads, fork_dim);
  append(cache, 100, 1);
  KvCache fork = cache.fork();
  expect_error([&] { fork.keys(); }, "own()");
  const Tensor q = random_tensor({1, 20, fork_heads, fork_dim}, 2);
  Tensor out(q.shape());
  expect_error([&] { cached_attention(q, fork, {}, out); }, "own()");
  fork.own();
  Tensor expected(q.shape());
  cached_attention(q, fork, {}, out);
  cached_attention(q, cache, {}, expected);
  EXPECT_TRUE(same_bits(out, expected));
}

TEST(ForkErrors, WhatWasReleasedIsNotShared) {
  KvCache cache(1, fork_heads, fork_dim);
  append(cache, 1000, 1);
  KvCache shares = cache.fork();
  const std::vector<int64_t> begins = {500, 130};
  shares.evict(begins, 10);
  cache.evict(begins, 10);
  EXPECT_EQ(shares.shared_bytes(), 0);
  expect_same(shares, cache);
  const KvCache copied = cache.fork();
  EXPECT_EQ(copied.shared_bytes(), 0);
  expect_same(copied, cache);
}

}  // namespace
}  // namespace alibi::test
