// Keys with gates that no later query needs: what is evicted, the bound on it, and float64 attention over all keys.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <tuple>

#include "alibi/context.h"
#include "alibi/kv_cache.h"
#include "alibi/language_model.h"
#include "attention/decode/evicted_keys.h"
#include "core/random.h"
#include "small_config.h"
#include "testing.h"

namespace alibi::test {
namespace {

constexpr float document = -std::numeric_limits<float>::infinity();

/// The share of the softmax weight that the first `evicted` keys of a head have, with the formula in float64.
double true_share(const Tensor& q, const Tensor& k, const Tensor& gates, const AttentionOptions& options, int64_t b,
                  int64_t query, int64_t head, int64_t position, int64_t evicted) {
  const std::vector<double> qs = doubles(q.slice(0, b, b + 1).slice(1, query, query + 1).slice(2, head, head + 1));
  const int64_t kv_head = head / (q.size(2) / k.size(2));
  const std::vector<double> ks = doubles(k.slice(0, b, b + 1).slice(1, 0, position + 1).slice(2, kv_head, kv_head + 1));
  const double scale = options.softmax_scale != 0 ? static_cast<double>(options.softmax_scale)
                                                  : 1 / std::sqrt(static_cast<double>(q.size(3)));
  const auto cap = static_cast<double>(options.softcap);
  const auto h = static_cast<size_t>(head);
  long double all = options.sinks.empty() ? 0 : std::exp(static_cast<long double>(options.sinks[h])), lost = 0;
  double bias = 0;
  for (int64_t key = position; key >= 0; --key) {
    if (options.sliding_window > 0 && position - key >= options.sliding_window) break;
    double score = 0;
    for (size_t d = 0; d < qs.size(); ++d) score += qs[d] * ks[static_cast<size_t>(key) * qs.size() + d];
    score *= scale;
    if (cap > 0) score = cap * std::tanh(score / cap);
    if (!options.alibi_slopes.empty()) {
      score -= static_cast<double>(options.alibi_slopes[h]) * static_cast<double>(position - key);
    }
    const long double weight = std::exp(static_cast<long double>(score + bias));
    all += weight;
    if (key < evicted) lost += weight;
    const float gate = gates.data<float>()[(b * gates.size(1) + key) * gates.size(2) + head];
    if (gate == document) break;
    bias += static_cast<double>(gate);
  }
  return static_cast<double>(lost / all);
}

struct EvictionCase {
  AttentionOptions options;
  int64_t batch, keys, heads, kv_heads, head_dim;
  DType dtype, cached;
  Tensor q, k, gates;  // as many queries as keys
};

/// Random sizes, options and keys, with gates from none to strong, and with documents.
EvictionCase random_case(uint64_t seed) {
  const core::Random random(seed, 77);
  uint64_t at = 0;
  const auto pick = [&](uint64_t n) { return static_cast<int64_t>(random.below(at++, n)); };
  EvictionCase c;
  c.batch = 1 + pick(2);
  c.kv_heads = 1 + pick(2);
  c.heads = c.kv_heads * (1 + pick(3));
  c.keys = 400 + pick(500);
  c.head_dim = std::array{4, 16, 20, 40}[static_cast<size_t>(pick(4))];
  c.dtype = pick(4) == 0 ? DType::bfloat16 : DType::float32;
  c.cached = pick(3) == 0 ? DType::q8_0 : c.dtype;
  const float scale = std::array{0.1f, 0.5f, 1.0f, 2.0f}[static_cast<size_t>(pick(4))];
  c.q = random_tensor({c.batch, c.keys, c.heads, c.head_dim}, seed + 1, pick(2) == 0 ? 0.4f : 1.0f, c.dtype);
  Tensor k = random_tensor({c.batch, c.keys, c.kv_heads, c.head_dim}, seed + 2, scale);
  const float common = pick(2) == 0 ? 0 : 3;  // what all keys have in common
  for (int64_t i = 0; i < k.elements(); ++i) k.data<float>()[i] += common * random.normal(900 + i % c.head_dim);
  for (int64_t i = pick(50); i < c.keys; i += 90 + pick(200)) {
    for (float& x : std::span(k.data<float>() + i * c.kv_heads * c.head_dim, static_cast<size_t>(c.head_dim))) x *= 2;
  }
  c.k = Tensor(k.shape(), c.dtype);
  for (int64_t i = 0; i < k.elements(); ++i) {
    if (c.dtype == DType::float32) {
      c.k.data<float>()[i] = k.data<float>()[i];
    } else {
      c.k.data<bfloat16>()[i] = bfloat16(k.data<float>()[i]);
    }
  }
  c.gates = Tensor({c.batch, c.keys, c.heads});
  const bool documents = pick(4) == 0;
  const int64_t kind = pick(3);
  for (int64_t i = 0; i < c.gates.elements(); ++i) {
    const float u = random.uniform(static_cast<uint64_t>(5000 + i));
    const float strength = std::array{0.3f, 0.05f, 3.0f}[static_cast<size_t>((i % c.heads + kind) % 3)];
    c.gates.data<float>()[i] = documents && u < 0.004f ? document : -u * strength;
  }
  if (pick(3) == 0) c.options.alibi_slopes = slopes(c.heads, 6);
  if (pick(3) == 0) c.options.softcap = 5;
  if (pick(4) == 0) c.options.sinks.assign(static_cast<size_t>(c.heads), 1.5f);
  if (pick(5) == 0) c.options.sliding_window = 300;
  if (pick(3) == 0) c.options.tolerance = 0x1p-24f;
  return c;
}

double norm_of(const Tensor& q, int64_t b, int64_t query, int64_t head) {
  double squares = 0;
  for (const double x : doubles(q.slice(0, b, b + 1).slice(1, query, query + 1).slice(2, head, head + 1))) {
    squares += x * x;
  }
  return std::sqrt(squares);
}

struct Worst {
  double of_bound = 0, of_tolerance = 0;  ///< true share / bound, bound / tolerance
  int64_t evicted = 0;
};

/// Fills a cache in pieces and evicts what is negligible in between. Then compares some queries at each place.
void check_case(const EvictionCase& c, double tolerance, Worst& worst) {
  const std::vector<double> norms(static_cast<size_t>(c.heads), 0.9 * std::sqrt(static_cast<double>(c.head_dim)));
  KvCache cache(c.batch, c.kv_heads, c.head_dim, c.cached);
  const int64_t step = c.keys / 5;
  for (int64_t length = step; length <= c.keys; length += step) {
    cache.append(c.k.slice(1, cache.length(), length), c.k.slice(1, cache.length(), length),
                 c.gates.slice(1, cache.length(), length));
    worst.evicted += cache.evict_negligible(tolerance, norms, c.options, 10);
    KvCache fork = cache.fork();  // reads on, and the cache itself does not change
    if (length + step <= c.keys) {
      const int64_t more = std::min<int64_t>(step, 70);
      fork.append(c.k.slice(1, length, length + more), c.k.slice(1, length, length + more),
                  c.gates.slice(1, length, length + more));
    }
    fork.own();
    for (KvCache* const of : {&cache, &fork}) {
      int64_t evicted = 0;
      for (int64_t h = 0; h < c.kv_heads; ++h) evicted = std::max(evicted, of->begin(h));
      const int64_t last = of->length(), queries = std::min<int64_t>(3, last - evicted);
      for (int64_t i = 0; i < queries; ++i) {
        const Tensor q = c.q.slice(1, last - queries + i, last - queries + i + 1).clone();
        AttentionOptions options = c.options;
        options.query_offset = last - queries + i;
        AttentionState state;
        Tensor out = Tensor::empty(q.shape(), q.dtype());
        of == &cache ? attention_decode(q, *of, options, out, &state) : cached_attention(q, *of, options, out, &state);
        const double bound = evicted_share(q, *of, options, state.lse);
        double longest = 0, lost = 0;
        for (int64_t row = 0; row < c.batch * c.heads; ++row) {
          const int64_t b = row / c.heads, head = row % c.heads, begin = of->begin(head / (c.heads / c.kv_heads));
          longest = std::max(longest, norm_of(q, b, 0, head));
          lost = std::max(lost, true_share(q, c.k, c.gates, c.options, b, 0, head, *options.query_offset, begin));
        }
        ASSERT_LE(lost, bound) << "query " << *options.query_offset << " at length " << last;
        worst.of_bound = std::max(worst.of_bound, lost > 1e-30 ? lost / bound : 0);
        if (longest > norms[0] || *options.query_offset < length - 1) continue;  // not a later query, or too long
        ASSERT_LE(lost, tolerance) << "query " << *options.query_offset << " at length " << last;
        worst.of_tolerance = std::max(worst.of_tolerance, bound / tolerance);
      }
    }
  }
}

TEST(OldestKeys, LostShareIsAtMostTheBound) {
  Worst worst;
  for (uint64_t seed = 0; seed < 60; ++seed) {
    SCOPED_TRACE(seed);
    check_case(random_case(seed), std::array{1e-6, 1e-2, 0.3}[seed % 3], worst);
    if (HasFatalFailure()) return;
  }
  EXPECT_GT(worst.evicted, 10000);
  EXPECT_LE(worst.of_tolerance, 1.05);
  RecordProperty("worst_share_over_bound", fmt::format("{:.3f}", worst.of_bound));
  RecordProperty("worst_bound_over_tolerance", fmt::format("{:.3f}", worst.of_tolerance));
}

/// Keys and queries for which the bound is nearly exact: evicted keys on one side of the centre, kept keys and their
/// mean on the other, and queries of the largest norm towards the former.
struct Adversary {
  double evicted_at = 2, kept_at = 0.5, gate = 0.02, norm = 3, spread = 0, angle = 0;

  /// The lost share over the one that was foreseen, and over the bound for this query.
  struct Ratios {
    double share = 0, to_tolerance = 0, to_bound = 0;
  };
  Ratios ratios(bool is_q8, double cap) const {
    constexpr int64_t size = 8, keys = 448, more = 3;
    Tensor k({1, keys + more, 1, size}), gates({1, keys + more, 1});
    const core::Random random(5);
    for (int64_t i = 0; i < keys + more; ++i) {
      const double noise = spread * static_cast<double>(random.normal(static_cast<uint64_t>(i)));
      // The first 64 keys have the mean 0, and those that are against the query are forgotten at once.
      const double x = i < 64 ? (i % 2 == 0 ? -evicted_at : evicted_at) : i < 256 ? evicted_at : -kept_at + noise;
      k.data<float>()[i * size] = static_cast<float>(x);
      k.data<float>()[i * size + 1] = static_cast<float>(std::sin(angle) * x);
      gates.data<float>()[i] = i < 64 && i % 2 == 1 ? -3 : i >= keys ? -1e-4f : static_cast<float>(-gate);
    }
    KvCache cache(1, 1, size, is_q8 ? DType::q8_0 : DType::float32);
    const auto append = [&](int64_t end) {
      const int64_t begin = cache.length();
      cache.append(k.slice(1, begin, end), k.slice(1, begin, end), gates.slice(1, begin, end));
    };
    append(keys);
    const AttentionOptions options{.softmax_scale = 1, .softcap = static_cast<float>(cap)};
    const std::vector<double> norms = {norm};
    const std::vector<double> shares = kernels::shares_of_oldest_keys(cache, options, norms).front();
    cache.evict(std::vector<int64_t>{256}, 1);
    append(keys + more);
    Tensor q({1, 1, 1, size});
    q.data<float>()[0] = static_cast<float>(norm * std::cos(angle));
    q.data<float>()[1] = static_cast<float>(norm * std::sin(angle));
    AttentionState state;
    attention_decode(q, cache, options, &state);
    const double share = true_share(q, k, gates, options, 0, 0, 0, keys + more - 1, 256);
    const double tolerance = 1 / (1 + std::exp(-shares[256 / 64]));
    return {share, share / tolerance, share / evicted_share(q, cache, options, state.lse)};
  }
};

TEST(OldestKeys, ASearchFindsNoShareAboveItsBound) {
  const core::Random random(11);
  uint64_t at = 0;
  const auto uniform = [&](double least, double most) {
    return least + (most - least) * static_cast<double>(random.uniform(at++));
  };
  using Ratios = Adversary::Ratios;
  Ratios worst;
  for (const double cap : {0.0, 4.0}) {
    for (const bool is_q8 : {false, true}) {
      for (int start = 0; start < 4; ++start) {
        Adversary best;
        double most = 0;
        for (int step = 0; step < 60; ++step) {
          Adversary next = best;
          const double width = step < 20 ? 1 : 0.1;
          for (const auto& [number, least, high] : {std::tuple{&next.evicted_at, 0.01, 4.0},
                                                    {&next.kept_at, -3.0, 4.0},
                                                    {&next.gate, 1e-4, 0.1},
                                                    {&next.norm, 0.1, 6.0},
                                                    {&next.spread, 0.0, 1.0},
                                                    {&next.angle, -0.8, 0.8}}) {
            *number = std::clamp(*number + width * uniform(least - high, high - least) / 2, least, high);
          }
          const Ratios found = next.ratios(is_q8, cap);
          constexpr double one = 1 + 0x1p-50;  // shares near 1 are rounded
          ASSERT_LE(found.to_tolerance, one) << "cap " << cap << " q8 " << is_q8 << " step " << step;
          ASSERT_LE(found.to_bound, one) << "cap " << cap << " q8 " << is_q8 << " step " << step;
          if (found.share > 0.1) continue;
          worst.to_tolerance = std::max(worst.to_tolerance, found.to_tolerance);
          worst.to_bound = std::max(worst.to_bound, found.to_bound);
          if (found.to_tolerance <= most) continue;
          most = found.to_tolerance;
          best = next;
        }
      }
    }
  }
  EXPECT_GT(worst.to_tolerance, 0.8) << "the search gets near";
  EXPECT_GT(worst.to_bound, 0.8);
  RecordProperty("worst_share_over_tolerance", fmt::format("{:.4f}", worst.to_tolerance));
  RecordProperty("worst_share_over_bound", fmt::format("{:.4f}", worst.to_bound));
}

TEST(OldestKeys, TheSameKeysAreEvictedAtAnyThreadCount) {
  int64_t evicted = 0;
  for (uint64_t seed = 200; seed < 212; ++seed) {
    SCOPED_TRACE(seed);
    const EvictionCase c = random_case(seed);
    const std::vector<double> norms(static_cast<size_t>(c.heads), std::sqrt(static_cast<double>(c.head_dim)));
    expect_same_bits_at_any_thread_count([&] {
      KvCache cache(c.batch, c.kv_heads, c.head_dim, c.cached);
      std::vector<double> numbers;
      for (const int64_t end : {c.keys / 2, c.keys}) {
        const Tensor k = c.k.slice(1, cache.length(), end);
        cache.append(k, k, c.gates.slice(1, cache.length(), end));
        for (const std::vector<double>& shares : kernels::shares_of_oldest_keys(cache, c.options, norms)) {
          numbers.insert(numbers.end(), shares.begin(), shares.end());
        }
        evicted += cache.evict_negligible(0.01, norms, c.options, 0);
        for (int64_t h = 0; h < c.kv_heads; ++h) numbers.push_back(static_cast<double>(cache.begin(h)));
      }
      const Tensor q = c.q.slice(1, c.keys - 1, c.keys).clone();
      AttentionState state;
      const Tensor out = attention_decode(q, cache, c.options, &state);
      numbers.push_back(evicted_share(q, cache, c.options, state.lse));
      Tensor bits({2 * std::ssize(numbers)}, DType::int32);
      std::memcpy(bits.raw(), numbers.data(), bits.bytes());
      return std::vector<Tensor>{out, state.lse, bits};
    });
  }
  EXPECT_GT(evicted, 0);
}

TEST(OldestKeys, LongerQueriesThanAssumedAreReported) {
  constexpr int64_t size = 16, keys = 1000;
  const Tensor k = random_tensor({1, keys, 1, size}, 1);
  Tensor gates({1, keys, 1});
  gates.fill(-0.02f);
  KvCache cache(1, 1, size);
  cache.append(k, k, gates);
  const std::vector<double> norms = {2};
  EXPECT_GT(cache.evict_negligible(1e-4, norms, {}, 0), 200);
  for (const double norm : {2.0, 60.0}) {
    Tensor q({1, 1, 1, size});
    for (int64_t d = 0; d < size; ++d) q.data<float>()[d] = static_cast<float>(norm) * k.data<float>()[d] / 4;
    for (float& x : std::span(q.data<float>(), size)) x *= static_cast<float>(norm / norm_of(q, 0, 0, 0));
    AttentionState state;
    attention_decode(q, cache, {}, &state);
    const double bound = evicted_share(q, cache, {}, state.lse);
    EXPECT_LE(true_share(q, k, gates, {}, 0, 0, 0, keys - 1, cache.begin(0)), bound);
    if (norm == 2.0) {
      EXPECT_LE(bound, 1e-4);
    } else {
      EXPECT_GT(bound, 1e-2);
    }
  }
}

/// An evicted key that is longer than all others, in an early block, and one that is nearly as long and kept. Some
/// queries are beyond the values of x for which sums are kept.
TEST(OldestKeys, OneLongKeyCounts) {
  constexpr int64_t size = 16, keys = 500;
  Tensor k = random_tensor({1, keys, 1, size}, 1, 0.1f), q({1, 1, 1, size});
  for (int64_t d = 0; d < size; ++d) {
    k.data<float>()[70 * size + d] *= 10;
    k.data<float>()[300 * size + d] = 0.9f * k.data<float>()[70 * size + d];
  }
  Tensor gates({1, keys, 1});
  gates.fill(-0.001f);
  KvCache cache(1, 1, size);
  cache.append(k, k, gates);
  cache.evict(std::vector<int64_t>{256}, 0);
  for (const float softcap : {0.0f, 15.0f}) {
    for (const float length : {1.0f, 10.0f, 1000.0f}) {
      for (int64_t d = 0; d < size; ++d) q.data<float>()[d] = length * k.data<float>()[70 * size + d];
      const AttentionOptions options{.softcap = softcap};
      AttentionState state;
      attention_decode(q, cache, options, &state);
      const double share = true_share(q, k, gates, options, 0, 0, 0, keys - 1, 256);
      EXPECT_GE(evicted_share(q, cache, options, state.lse), share) << softcap << " " << length;
      EXPECT_TRUE(share > 0.1 || length == 1.0f) << share;
    }
  }
}

TEST(OldestKeys, ADocumentNeedsNoneBeforeIt) {
  constexpr int64_t keys = 300;
  const Tensor k = random_tensor({1, keys, 2, 16}, 1, 3), q = random_tensor({1, 1, 2, 16}, 2, 3);
  Tensor gates({1, keys, 2});
  gates.slice(1, 192, 193).fill(document);
  KvCache cache(1, 2, 16);
  cache.append(k.slice(1, 0, 192), k.slice(1, 0, 192), gates.slice(1, 0, 192));
  const std::vector<double> norms = {100, 100};
  EXPECT_EQ(cache.evict_negligible(1e-9, norms, {}, 0), 0) << "nothing is forgotten yet";
  cache.append(k.slice(1, 192, keys), k.slice(1, 192, keys), gates.slice(1, 192, keys));
  EXPECT_EQ(cache.evict_negligible(1e-9, norms, {}, 0), 2 * 192);
  AttentionState state;
  attention_decode(q, cache, {}, &state);
  EXPECT_EQ(evicted_share(q, cache, {}, state.lse), 0);
}

TEST(OldestKeys, AnyNumberOfKeysTakesTheSameMemory) {
  constexpr int64_t size = 16, step = 512;
  const Tensor k = random_tensor({1, step, 1, size}, 1);
  Tensor gates({1, step, 2});
  gates.fill(-0.05f);
  KvCache cache(1, 1, size);
  const std::vector<double> norms = {4, 4};
  std::vector<int64_t> bytes;
  for (int i = 0; i < 200; ++i) {
    cache.append(k, k, gates);
    cache.evict_negligible(1e-6, norms, {}, 0);
    bytes.push_back(cache.bytes());
  }
  EXPECT_EQ(cache.length(), 200 * step);
  EXPECT_LE(bytes.back(), bytes[3] + 1000) << "the levels of the trees";
}

TEST(OldestKeys, Errors) {
  const Tensor k = random_tensor({1, 200, 2, 16}, 1);
  Tensor gates({1, 200, 4});
  KvCache cache(1, 2, 16), plain(1, 2, 16);
  plain.append(k, k);
  const std::vector<double> norms(4, 1), three(3, 1), wrong = {1, 1, -1, 1};
  expect_error([&] { plain.evict_negligible(0.1, norms, {}, 0); }, "the cache has no gates");
  expect_error([&] { cache.evict_negligible(0.1, norms, {}, 0); }, "the cache has no gates");
  cache.append(k, k, gates);
  expect_error([&] { cache.evict_negligible(0, norms, {}, 0); }, "tolerance is 0");
  expect_error([&] { cache.evict_negligible(0.1, three, {}, 0); },
               "found 3 norms of queries, expected one for each of 4");
  expect_error([&] { cache.evict_negligible(0.1, wrong, {}, 0); }, "a norm of queries is -1");
  const AttentionOptions table{.bias_by_distance = Tensor({9, 4})};
  expect_error([&] { cache.evict_negligible(0.1, norms, table, 0); }, "the bias is a table");
  EXPECT_EQ(cache.begin(0), 0);
  // A key that is not finite may have any weight, so it stays.
  Tensor bad = k.clone();
  bad.data<float>()[5] = std::numeric_limits<float>::quiet_NaN();
  gates.fill(-1);
  KvCache damaged(1, 2, 16);
  damaged.append(bad, bad, gates);
  damaged.evict_negligible(0.1, norms, {}, 0);
  EXPECT_EQ(damaged.begin(0), 0);
  EXPECT_GT(damaged.begin(1), 0);
}

// Models

constexpr int64_t text_length = 3000;
constexpr int64_t key_bytes = 2 * 16 * 4;                         // with its value
constexpr int64_t bytes_of_token = 2 * (2 * key_bytes + 4 * 20);  // two layers of two heads, and four gates

/// Two layers of four heads with two of keys and values. The gates depend on the tokens.
LanguageModel gated_reader(const std::function<void(TransformerConfig&)>& change = {}) {
  LanguageModelConfig config = test::small_config();
  config.transformer.attention.kv_heads = 2;
  config.transformer.attention.alibi_bias_max = 4;
  config = with_position(config, position_from("gates"), 4096);
  if (change) change(config.transformer);
  LanguageModel model(config, 3);
  const core::Random random(9);
  for (Parameter* parameter : model.parameters()) {
    if (parameter->name.find("Wqkv.weight") != std::string::npos) {
      for (float& x : std::span(parameter->value.data<float>(), static_cast<size_t>(parameter->value.elements())))
        x *= 2;
    }
    if (parameter->name != "gates.weight") continue;
    for (int64_t i = 0; i < parameter->value.elements(); ++i) {
      parameter->value.data<float>()[i] = 0.1f * random.normal(static_cast<uint64_t>(i));
    }
  }
  return model;
}

/// Reads a chunk, then token by token, then chunks. `look` is called after each.
std::vector<float> read_text(const LanguageModel& model, Context& context, const std::function<void()>& look = {}) {
  const Tensor ids = random_ids({1, text_length}, 1, 257), next = random_ids({1, text_length}, 5, 257);
  std::vector<float> nll;
  const auto read_to = [&](int64_t end) {
    const int64_t begin = context.position();
    const auto part = [&](const Tensor& of) {
      return Tensor::view(of.data<int32_t>() + begin, {1, end - begin}, DType::int32);
    };
    const std::vector<float> more = model.nll(part(ids), part(next), context);
    nll.insert(nll.end(), more.begin(), more.end());
    if (look) look();
  };
  read_to(700);
  for (int64_t end = 701; end < 1500; ++end) read_to(end);
  read_to(2100);
  read_to(text_length);
  return nll;
}

TEST(OldestKeys, AModelThatForgetsHasABoundedContext) {
  const auto plain = [](TransformerConfig&) {};
  const auto normed = [](TransformerConfig& config) { config.attention.qk_norm = true; };
  const auto clamped = [](TransformerConfig& config) { config.attention.clip_qkv = 0.5; };
  const auto with_sinks = [](TransformerConfig& config) { config.attention.sinks = true; };
  for (const std::function<void(TransformerConfig&)>& change :
       std::vector<std::function<void(TransformerConfig&)>>{plain, normed, clamped, with_sinks}) {
    const LanguageModel model = gated_reader(change);
    Context unlimited(model), context(model, {.eviction_tolerance = 1e-6, .exact = true});
    const std::vector<float> whole = read_text(model, unlimited);
    int64_t most = 0;
    const std::vector<float> nll = read_text(model, context, [&] { most = std::max(most, context.bytes()); });
    EXPECT_LE(max_abs_diff(nll, whole), 2e-4);
    const EvictionCertificate certificate = context.certificate();
    EXPECT_GT(certificate.keys, 4 * 1500);
    EXPECT_EQ(certificate.keys + certificate.kept, 4 * text_length);
    EXPECT_LE(certificate.worst, 1e-6);
    EXPECT_LT(most, 2000 * bytes_of_token);
    EXPECT_LT(context.bytes(), unlimited.bytes() / 2);
    EXPECT_EQ(unlimited.certificate().kept, 4 * text_length);
  }
}

TEST(OldestKeys, ContextsHoldWhatTheirMemoryAllows) {
  const LanguageModel model = gated_reader();
  constexpr int64_t limit = 500 * 4 * key_bytes;
  Context context(model, {.memory = limit});
  int64_t most = 0;
  read_text(model, context, [&] { most = std::max(most, context.certificate().kept); });
  EXPECT_LE(most * key_bytes, limit);
  EXPECT_GT(context.certificate().keys, 4 * 2000);
  EXPECT_GT(context.certificate().worst, 0);
}

TEST(OldestKeys, AWrongBoundOnQueriesShows) {
  const LanguageModel model = gated_reader();
  Context wrong(model, {.eviction_tolerance = 1e-6, .query_norm = 1e-3}), right(model, {.eviction_tolerance = 1e-6});
  read_text(model, wrong);
  read_text(model, right);
  EXPECT_GT(wrong.certificate().worst, 1e-6);
  EXPECT_LE(right.certificate().worst, 1e-6);
  EXPECT_LT(wrong.certificate().kept, right.certificate().kept);
  Context exact(model, {.eviction_tolerance = 1e-6, .query_norm = 1e-3, .exact = true});
  expect_error([&] { read_text(model, exact); }, "more than the tolerance 1e-06");
}

TEST(OldestKeys, ForksOfContextsGiveTheSameBits) {
  const LanguageModel model = gated_reader();
  const Tensor ids = random_ids({1, text_length}, 1, 257);
  const auto part = [&](int64_t begin, int64_t end) {
    return Tensor::view(ids.data<int32_t>() + begin, {1, end - begin}, DType::int32);
  };
  Context context(model, {.eviction_tolerance = 1e-6});
  model.next_logits(part(0, 1500), context);
  model.next_logits(part(1500, 1501), context);
  Context fork = context.fork();
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{1501, 1502}, {1502, 2700}, {2700, 2701}}) {
    const Tensor expected = model.next_logits(part(begin, end), context);
    EXPECT_TRUE(same_bits(model.next_logits(part(begin, end), fork), expected));
  }
  EXPECT_GT(fork.certificate().keys, 0);
  EXPECT_EQ(fork.certificate().worst, context.certificate().worst);
  EXPECT_EQ(fork.certificate().kept, context.certificate().kept);
}

TEST(OldestKeys, ErrorsOfContexts) {
  const LanguageModel model = gated_reader();
  expect_error([&] { const Context context(model, {.eviction_tolerance = 1e-6, .query_norm = 0}); },
               "query_norm is 0, expected above 0");
  LanguageModelConfig config = preset("tiny");
  const LanguageModel other(with_position(config, Position::alibi, 128), 1);
  expect_error([&] { const Context context(other, {.eviction_tolerance = 1e-6, .query_norm = 1}); },
               "query_norm is set for alibi positions");
}

}  // namespace
}  // namespace alibi::test
