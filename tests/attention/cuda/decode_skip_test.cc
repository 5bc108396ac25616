// The skip rule of cached decoding in emulated lanes: skipped keys weigh at most as much as proven, are not read, and
// are those that the rule written here in float64 skips.
#include <cmath>

#include "attention/cuda/emulated_device.h"
#include "attention/decode/cases.h"
#include "attention/decode/kv_cache_state.h"
#include "attention/skip/norms.h"

namespace alibi::kernels {
namespace {

using namespace test;

constexpr int64_t keys_of_block = 64, near_keys = 128;

/// One query head and one key/value head with the query at the end, so that the last keys are visited.
struct OneRow {
  explicit OneRow(int64_t keys, DType dtype = DType::bfloat16, float slope = 0.02f, float tolerance = 0x1p-11f)
      : c{.keys = keys, .heads = 1, .kv_heads = 1, .head_dim = 32, .dtype = dtype, .tolerance = tolerance},
        in(c),
        options{.alibi_slopes = {slope}, .tolerance = tolerance} {}

  /// On the device; `first_block`: where the visit begins.
  void run() {
    KvCache cache(1, 1, c.head_dim, c.dtype, Device::cuda);
    const Tensor k = in.k.to(Device::cuda), v = in.v.to(Device::cuda);
    for (const auto& [begin, end] : {std::pair{int64_t{0}, c.keys / 2}, {c.keys / 2, c.keys}}) {
      std::optional<Tensor> of_keys;
      if (gates.defined()) of_keys = gates.slice(1, begin, end).to(Device::cuda);
      cache.append(k.slice(1, begin, end), v.slice(1, begin, end), of_keys);
    }
    AttentionState state;
    out = attention_decode(in.q.to(Device::cuda), cache, options, &state).to(Device::cpu);
    lse = static_cast<double>(state.lse.to_floats()[0]);
    total = state.stats.blocks_total;
    first_block = total - state.stats.blocks_visited;
    centre = doubles(core::state_of(cache).bounds.centres);
  }

  /// The sum of the gates after a key.
  double gates_after(int64_t key) const {
    double sum = 0;
    if (!gates.defined()) return sum;
    for (int64_t j = key + 1; j < c.keys; ++j) sum += static_cast<double>(gates.data<float>()[j]);
    return sum;
  }

  std::vector<double> scores() const {
    const std::vector<double> q = doubles(in.q), k = doubles(in.k);
    const auto size = static_cast<size_t>(c.head_dim);
    std::vector<double> result;
    for (size_t j = 0; j < static_cast<size_t>(c.keys); ++j) {
      double sum = 0;
      for (size_t d = 0; d < size; ++d) sum += q[d] * k[j * size + d];
      result.push_back(sum / std::sqrt(static_cast<double>(size)) -
                       static_cast<double>(options.alibi_slopes[0]) *
                           static_cast<double>(c.keys - 1 - static_cast<int64_t>(j)) +
                       gates_after(static_cast<int64_t>(j)));
    }
    return result;
  }

  /// The share of the row's weight that lies before the first block visited.
  double skipped_share() const {
    const std::vector<double> all = scores();
    const double most = *std::max_element(all.begin(), all.end());
    double skipped = 0, sum = 0;
    for (size_t j = 0; j < all.size(); ++j) {
      const double weight = std::exp(all[j] - most);
      sum += weight;
      if (static_cast<int64_t>(j) < first_block * keys_of_block) skipped += weight;
    }
    return skipped / sum;
  }

  /// The first block that the rule visits, without any slack, if it may spend `factor` times the tolerance.
  int64_t first_of_the_rule(double factor) const {
    const std::vector<double> q = doubles(in.q), k = doubles(in.k), all = scores();
    const auto size = static_cast<size_t>(c.head_dim);
    const double scale = 1 / std::sqrt(static_cast<double>(size)), slope = static_cast<double>(options.alibi_slopes[0]);
    const int64_t near = (c.keys - near_keys) / keys_of_block * keys_of_block;
    const double most = *std::max_element(all.begin() + near, all.end());
    double sum = 0, length = 0, product = 0;
    for (size_t j = static_cast<size_t>(near); j < all.size(); ++j) sum += std::exp(all[j] - most);
    for (size_t d = 0; d < size; ++d) {
      length += q[d] * q[d];
      product += scale * q[d] * centre[d];
    }
    const double reach = scale * std::sqrt(length);
    double left = factor * static_cast<double>(options.tolerance) * sum;
    for (int64_t first = 0; first < near; first += keys_of_block) {
      double norm = 0, radius = 0;
      for (size_t j = static_cast<size_t>(first); j < static_cast<size_t>(first + keys_of_block); ++j) {
        double squares = 0, distances = 0;
        for (size_t d = 0; d < size; ++d) {
          squares += std::pow(k[j * size + d], 2);
          distances += std::pow(k[j * size + d] - centre[d], 2);
        }
        norm = std::max(norm, std::sqrt(squares));
        radius = std::max(radius, std::sqrt(distances));
      }
      const double score = std::min(reach * norm, product + reach * radius);
      left -= std::exp(score - slope * static_cast<double>(c.keys - first - keys_of_block) +
                       gates_after(first + keys_of_block - 1) - most) *
              (slope > 0 ? kernels::weight_of_keys(slope, keys_of_block) : static_cast<double>(keys_of_block));
      if (!(left >= 0)) return first / keys_of_block;
    }
    return near / keys_of_block;
  }

  /// What is skipped lies within the proof, and the output is that of the keys that are left.
  void expect_proven(bool skips = true) {
    SCOPED_TRACE(c.name());
    run();
    EXPECT_TRUE(skipped_share() <= static_cast<double>(options.tolerance)) << skipped_share();
    EXPECT_EQ(first_block > 0, skips);
    std::vector<double> expected, expected_lse;
    AttentionOptions plain = options;
    plain.tolerance = 0;
    if (gates.defined()) plain.log_decay = gates.slice(1, first_block * keys_of_block, c.keys);
    attention_reference(in.q, in.k.slice(1, first_block * keys_of_block, c.keys),
                        in.v.slice(1, first_block * keys_of_block, c.keys), plain, expected, &expected_lse);
    const double unit = c.dtype == DType::bfloat16 ? 0x1p-8 : 0x1p-11;
    EXPECT_TRUE(max_abs_diff(out, expected) <= 1.5 * unit * (max_abs(expected) + 0.1));
    EXPECT_TRUE(std::abs(lse - expected_lse[0]) <= 1e-5 + 1e-5 * std::abs(lse)) << lse << ", " << expected_lse[0];
  }

  DecodeCase c;
  DecodeInputs in;
  AttentionOptions options;
  Tensor gates;  // undefined: none
  Tensor out;
  double lse = 0;
  int64_t total = 0, first_block = 0;
  std::vector<double> centre;
};

TEST(DecodeCudaSkip, ACacheCutShorterThanItsCentreHasNone) {
  const EmulatedDevice device;
  KvCache cache(1, 1, 64, DType::bfloat16, Device::cuda);
  Tensor keys = Tensor::empty({1, 100, 1, 64});
  keys.fill(2);
  const Tensor rows = keys.to(DType::bfloat16).to(Device::cuda);
  cache.append(rows, rows);
  EXPECT_GT(max_abs(doubles(core::state_of(cache).bounds.centre_norms)), 1);
  cache.truncate(30);
  EXPECT_EQ(max_abs(doubles(core::state_of(cache).bounds.centre_norms)), 0);
  EXPECT_EQ(max_abs(doubles(core::state_of(cache).bounds.centres)), 0);
}

TEST(DecodeCudaSkip, WhatIsSkippedLiesWithinTheProof) {
  const EmulatedDevice device;
  for (const DType dtype : {DType::bfloat16, DType::float16}) {
    for (const float tolerance : {0x1p-24f, 0x1p-11f, 0.1f}) {
      for (const float slope : {0.02f, 0.3f, 4.0f}) OneRow(1500, dtype, slope, tolerance).expect_proven();
    }
  }
}

TEST(DecodeCudaSkip, WithGatesTheBlocksAreThoseOfTheRule) {
  const EmulatedDevice device;
  for (const float slope : {0.0f, 0.005f}) {
    for (const float mean : {0.003f, 0.02f, 0.2f}) {
      for (const float tolerance : {0x1p-24f, 0x1p-11f}) {
        OneRow row(2600, DType::bfloat16, slope, tolerance);
        row.gates = random_tensor({1, 2600, 1}, 3);
        for (int64_t j = 0; j < 2600; ++j) {
          float& gate = row.gates.data<float>()[j];
          gate = -mean * std::abs(gate);
        }
        row.expect_proven(mean > 0.01f || (slope > 0 && tolerance > 1e-5f));
        EXPECT_LE(row.first_block, row.first_of_the_rule(1)) << slope << " " << mean;
        EXPECT_GE(row.first_block, row.first_of_the_rule(0.5)) << slope << " " << mean;
      }
    }
  }
}

TEST(DecodeCudaSkip, BlocksVisitedAreThoseOfTheRule) {
  const EmulatedDevice device;
  for (const int64_t keys : {700, 1111, 1500, 2600}) {
    for (const float slope : {0.01f, 0.02f, 0.05f}) {
      OneRow row(keys, DType::bfloat16, slope);
      for (const float common : {0.0f, 2.0f}) {
        Tensor k = row.in.k.to(DType::float32);
        for (int64_t i = 0; i < k.elements(); ++i) k.data<float>()[i] += common;
        row.in.k = k.to(DType::bfloat16);
        row.run();
        // The larger nodes of the tree, and slack, cost at most as much as half of the budget.
        EXPECT_LE(row.first_block, row.first_of_the_rule(1)) << keys << " keys, slope " << slope;
        EXPECT_GE(row.first_block, row.first_of_the_rule(0.5)) << keys << " keys, slope " << slope;
      }
    }
  }
}

TEST(DecodeCudaSkip, VisitsNoMoreInALongerCache) {
  const EmulatedDevice device;
  OneRow shorter(2000), longer(20000);
  longer.in.q = shorter.in.q;
  shorter.run();
  longer.run();
  EXPECT_LE(std::abs((longer.total - longer.first_block) - (shorter.total - shorter.first_block)), 3);
  EXPECT_LT(longer.total - longer.first_block, 30);
}

TEST(DecodeCudaSkip, WhatIsSkippedIsNotRead) {
  // The rule does not read values, so only values of visited keys can spoil the result.
  const EmulatedDevice device;
  OneRow row(1500);
  row.run();
  ASSERT_GT(row.first_block, 4);
  const Tensor expected = row.out;
  row.in.v.slice(1, 0, row.first_block * keys_of_block).fill(std::numeric_limits<float>::quiet_NaN());
  row.run();
  EXPECT_TRUE(same_bits(row.out, expected));
  row.in.v.slice(1, row.first_block * keys_of_block, row.first_block * keys_of_block + 1)
      .fill(std::numeric_limits<float>::infinity());
  row.run();
  EXPECT_FALSE(std::isfinite(max_abs(row.out.to_floats()))) << "and the first that is visited is read";
}

TEST(DecodeCudaSkip, AHugeKeyFarAwayIsFound) {
  const EmulatedDevice device;
  for (const int64_t at : {0, 63, 64, 500, 1300}) {
    OneRow row(1500);
    Tensor key = row.in.q.to(DType::float32);
    for (int64_t d = 0; d < 32; ++d) key.data<float>()[d] *= 20;
    row.in.k.slice(1, at, at + 1).copy_from(key.to(DType::bfloat16));
    row.in.v.slice(1, at, at + 1).fill(9);
    row.run();
    EXPECT_LE(row.first_block, at / keys_of_block);
    EXPECT_TRUE(row.skipped_share() <= 0x1p-11);
  }
}

TEST(DecodeCudaSkip, ManySmallSharesSpendOneBudget) {
  // Norms make up for distance: each block weighs less than the budget, and all together many times as much.
  const EmulatedDevice device;
  for (const bool backwards : {true, false}) {
    OneRow row(5000, DType::float16, 1e-3f, 1e-3f);
    row.in.q.fill(1);
    row.in.k.fill(0);
    row.in.v.fill(0);
    if (!backwards) row.options.query_offset = 1;
    row.options.causal = backwards;
    for (int64_t distance = 256; distance < 4998; ++distance) {
      const int64_t j = backwards ? 4999 - distance : 1 + distance;
      const float score = std::log(1e-3f) + 1e-3f * static_cast<float>(distance);  // weight 0.001
      row.in.k.slice(1, j, j + 1).fill(score / std::sqrt(32.0f));
      row.in.v.slice(1, j, j + 1).fill(1);
    }
    row.run();
    std::vector<double> expected;
    AttentionOptions plain = row.options;
    plain.tolerance = 0;
    attention_reference(row.in.q, row.in.k, row.in.v, plain, expected);
    EXPECT_TRUE(max_abs_diff(row.out, expected) <= 2e-3 + 1e-3) << backwards;
    EXPECT_LT(row.first_block, 30);
  }
}

TEST(DecodeCudaSkip, NodesOfAllLevelsSpendOneBudget) {
  // Every block may weigh a fortieth of the budget: so two nodes of 16 blocks, and then a few of the blocks below.
  const EmulatedDevice device;
  constexpr float slope = 1e-4f;
  OneRow row(5000, DType::float16, slope, 1e-3f);
  row.in.q.fill(1);
  row.in.k.fill(10 / std::sqrt(32.0f));
  for (int64_t distance = 256; distance < 5000; ++distance) {
    const float score = 0.26f + slope * static_cast<float>(distance);
    row.in.k.slice(1, 4999 - distance, 5000 - distance).fill(score / std::sqrt(32.0f));
  }
  row.run();
  EXPECT_TRUE(row.skipped_share() <= 1e-3) << row.skipped_share();
  EXPECT_LE(row.first_block, row.first_of_the_rule(1));
  EXPECT_GE(row.first_block, 32);
  EXPECT_NE(row.first_block % 16, 0);
}

TEST(DecodeCudaSkip, KeysThatAreNotFiniteAreVisited) {
  const EmulatedDevice device;
  for (const float bad : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    OneRow row(1500);
    row.in.k.slice(1, 70, 71).slice(3, 5, 6).fill(bad);
    row.run();
    EXPECT_EQ(row.first_block, 1);
    const bool matters = std::isnan(bad) || row.in.q.to_floats()[5] > 0;
    EXPECT_EQ(std::isnan(max_abs(row.out.to_floats())), matters);
    row.options = {.alibi_slopes = {4}};
    row.run();
    EXPECT_EQ(std::isnan(max_abs(row.out.to_floats())), matters) << "whatever the weight of its split";
  }
}

TEST(DecodeCudaSkip, SlopesFromZeroToSteepAndHugeQueries) {
  const EmulatedDevice device;
  for (const float slope : {1e-30f, 0x1p-16f, 1.0f, 100.0f, 1e30f})
    OneRow(700, DType::float16, slope).expect_proven(slope >= 1);
  OneRow none(700, DType::float16, 0);
  none.run();
  EXPECT_EQ(none.first_block, 0) << "without a slope every key is visited";
  OneRow huge(1500);
  Tensor q = huge.in.q.to(DType::float32);
  for (int64_t d = 0; d < 32; ++d) q.data<float>()[d] *= 50;
  huge.in.q = q.to(DType::bfloat16);
  huge.run();
  EXPECT_TRUE(huge.skipped_share() <= 0x1p-11);
}

/// Against the CPU's decoding of the same numbers, whose groups of rows are the same.
TEST(DecodeCudaSkip, BothDirectionsWindowsAndGroupsVisitWhatTheCpuVisits) {
  const EmulatedDevice device;
  int64_t found = 0, expected = 0;
  for (const int64_t group : {1, 4}) {
    DecodeCase c{.keys = 3000, .queries = 2, .heads = 2 * group, .head_dim = 16, .dtype = DType::bfloat16};
    c.tolerance = 0x1p-11f;
    const DecodeInputs in(c);
    KvCache cpu(1, 2, 16, DType::bfloat16), there(1, 2, 16, DType::bfloat16, Device::cuda);
    cpu.append(in.k, in.v);
    there.append(in.k.to(Device::cuda), in.v.to(Device::cuda));
    for (const int64_t offset : {1, 700, 2500, 2998, 3100}) {
      for (const int64_t window : {0, 1000}) {
        AttentionOptions options = c.options();
        options.query_offset = offset;
        options.sliding_window = window;
        options.causal = offset == 2998;
        AttentionState on_cpu, on_device;
        const Tensor out = attention_decode(in.q, cpu, options, &on_cpu);
        const Tensor other = attention_decode(in.q.to(Device::cuda), there, options, &on_device).to(Device::cpu);
        const double largest = max_abs(doubles(in.v));
        EXPECT_TRUE(max_abs_diff(other, doubles(out)) <= 4 * 0x1p-11 * largest + 0x1p-7);
        EXPECT_EQ(on_device.stats.blocks_total, on_cpu.stats.blocks_total) << offset << " " << window;
        // The same but for the last step of a walk: two groups, two directions.
        EXPECT_LE(std::abs(on_device.stats.blocks_visited - on_cpu.stats.blocks_visited), 4) << offset << " " << window;
        found += on_device.stats.blocks_visited;
        expected += on_cpu.stats.blocks_visited;
      }
    }
  }
  EXPECT_LE(std::abs(found - expected), expected / 50) << found << " against " << expected;
}

}  // namespace
}  // namespace alibi::kernels
