// The numbers that the skip rule compares are upper bounds of norms and of the weight of keys. Each is compared with
// the exact value in long double, for inputs that make rounding errors as large as possible.
#include <cmath>
#include <functional>
#include <numbers>

#include "attention/cases.h"
#include "attention/problem.h"
#include "attention/skip/weights.h"
#include "attention/vector/tasks.h"

namespace alibi::kernels {
namespace {

using namespace test;
using Exact = long double;

constexpr Exact exact_log2e = std::numbers::log2e_v<Exact>;

/// log2 of the sum of 2^e.
Exact exact_log2_sum(const std::vector<Exact>& exponents) {
  Exact max = -HUGE_VALL, sum = 0;
  for (const Exact e : exponents) max = std::max(max, e);
  for (const Exact e : exponents) sum += std::exp2(e - max);
  return max == -HUGE_VALL ? max : max + std::log2(sum);
}

Exact exact_norm(const float* row, const float* centre, int64_t size) {
  Exact sum = 0;
  for (int64_t d = 0; d < size; ++d) {
    const Exact x = static_cast<Exact>(row[d]) - (centre != nullptr ? static_cast<Exact>(centre[d]) : 0);
    sum += x * x;
  }
  return std::sqrt(sum);
}

/// The keys of one direction of a head, with distances from the edge of each block.
struct Side {
  const kernels::WeightBounds::Head& bounds;
  bool before = true;
  Exact slope = 0;  ///< in powers of two
  const std::vector<Exact>&norms, &radii;

  kernels::Range remaining(int64_t block) const {
    const auto keys = static_cast<int64_t>(norms.size()), edge = std::min(block * kernels::key_rows, keys);
    return before ? kernels::Range{0, edge} : kernels::Range{edge, keys};
  }
  static Exact largest(const std::vector<Exact>& of, const kernels::Range& keys) {
    Exact most = 0;
    for (int64_t j = keys.begin; j < keys.end; ++j) most = std::max(most, of[static_cast<size_t>(j)]);
    return most;
  }
  /// Their weight for a query with |scale| |q| log2(e) = x, without its product with the centre.
  Exact weight(int64_t block, Exact x) const {
    const kernels::Range keys = remaining(block);
    const int64_t edge = block * kernels::key_rows;
    std::vector<Exact> exponents;
    for (int64_t j = keys.begin; j < keys.end; ++j) {
      const int64_t distance = before ? edge - 1 - j : j - edge;
      exponents.push_back(x * radii[static_cast<size_t>(j)] - slope * static_cast<Exact>(distance));
    }
    return exact_log2_sum(exponents);
  }

  void check(int64_t block) const {
    SCOPED_TRACE(fmt::format("block {} {}", block, before ? "before" : "from"));
    const kernels::Range keys = remaining(block);
    const float norm = (before ? bounds.norm_before : bounds.norm_from)[block];
    const float radius = (before ? bounds.radius_before : bounds.radius_from)[block];
    ASSERT_GE(static_cast<Exact>(norm), largest(norms, keys));
    ASSERT_GE(static_cast<Exact>(radius), largest(radii, keys));
    const kernels::WeightBounds::Values& values = (before ? bounds.before : bounds.from)[block];
    for (size_t e = 0; e < values.size(); ++e) {
      ASSERT_GE(static_cast<Exact>(values[e]), weight(block, static_cast<Exact>(bounds.x[e]))) << "level " << e;
    }
    const float typical = bounds.x[4];
    for (const auto& [least, most] :
         {std::pair{0.0f, 0.3f}, {0.9f, 0.9f}, {0.6f, 1.9f}, {1.1f, 30.0f}, {9.0f, 1000.0f}}) {
      check_chord(block, norm, least * typical, most * typical);
    }
  }
  /// The bound that a block of queries uses: the chord between the kept values, or beyond the last of them.
  void check_chord(int64_t block, float norm, float least, float most) const {
    const kernels::Levels at = bounds.levels_of(least, most);
    const kernels::Chord chord = before ? bounds.chord_before(at, block) : bounds.chord_from(at, block);
    for (const float x : {least + (most - least) / 5, most}) {
      const double found = static_cast<double>(chord.low) + static_cast<double>(at.share(x) * chord.rise);
      // The slack that the rule adds for its arithmetic in float32 (skip-inl.h).
      const double slack = 0x1p-20 * (static_cast<double>(x) * static_cast<double>(norm + bounds.centre_norm) +
                                      std::abs(static_cast<double>(chord.low)));
      // Nothing is skipped if it is not finite.
      ASSERT_FALSE(static_cast<Exact>(found + slack) < weight(block, static_cast<Exact>(x)))
          << "queries of " << least << " to " << most << ", this one " << x << ": bound " << found << ", exactly "
          << static_cast<double>(weight(block, static_cast<Exact>(x)));
    }
  }
};

struct KeysOfAKind {
  const char* name;
  std::function<float(float normal, int64_t key, int64_t dim)> value;
};

const std::vector<KeysOfAKind>& hard_keys() {
  static const std::vector<KeysOfAKind> kinds = {
      {"normal", [](float x, int64_t, int64_t) { return x; }},
      {"equal", [](float, int64_t, int64_t dim) { return 0.1f * static_cast<float>(dim + 1); }},
      {"zero", [](float, int64_t, int64_t) { return 0.0f; }},
      {"a large centre", [](float x, int64_t, int64_t dim) { return 1e4f + static_cast<float>(dim) + x; }},
      {"a huge centre", [](float x, int64_t, int64_t) { return 3e7f + x; }},
      {"far apart, their sum near zero",
       [](float x, int64_t key, int64_t) { return (key % 2 == 0 ? 1e5f : -1e5f) + x; }},
      {"an outlier", [](float x, int64_t key, int64_t) { return key == 5 ? 300 * x : x; }},
      {"growing with distance", [](float x, int64_t key, int64_t) { return x * static_cast<float>(300 - key) / 30; }},
      {"squares that underflow", [](float x, int64_t, int64_t) { return 1e-21f * x; }},
      {"subnormal", [](float x, int64_t, int64_t) { return 1e-40f * x; }},
      {"a subnormal centre", [](float, int64_t, int64_t) { return 1e-40f; }},
      {"squares that nearly overflow", [](float x, int64_t, int64_t) { return 1e18f * x; }},
      {"squares that overflow", [](float x, int64_t key, int64_t) { return key == 70 ? 1e25f * x : x; }},
  };
  return kinds;
}

TEST(AttentionSkipBounds, AreAtLeastTheExactValues) {
  constexpr int64_t length = 3 * kernels::key_rows + 20;
  for_each_isa([&] {
    uint64_t seed = 1;
    for (const KeysOfAKind& kind : hard_keys()) {
      for (const float query : {1.0f, 300.0f}) {
        SCOPED_TRACE(fmt::format("{} keys, queries of {}", kind.name, query));
        AttentionTensors t({.queries = length, .keys = length, .heads = 4, .kv_heads = 2, .seed = ++seed});
        for (int64_t i = 0; i < t.q.elements(); ++i) t.q.data<float>()[i] *= query;
        for (int64_t i = 0; i < t.k.elements(); ++i) {
          t.k.data<float>()[i] = kind.value(t.k.data<float>()[i], i / 32, i % 16);
        }
        const AttentionOptions options{.alibi_slopes = {0.5f, 1e-3f, 0, 30},
                                       .alibi_slopes_after = {0.1f, 1e-40f, 1e20f, 2},
                                       .causal = false,
                                       .tolerance = 0x1p-24f};
        const kernels::Problem problem = kernels::make_problem("test", t.q, t.k, t.v, t.out, options);
        kernels::WeightBounds bounds(problem, kernels::key_rows);
        for (int64_t kv_head = 0; kv_head < 2; ++kv_head) {
          for (int64_t block = 0; block < 4; ++block) kernels::measure_keys(problem, 0, kv_head, block, bounds);
        }
        bounds.accumulate();
        for (int64_t head = 0; head < 4; ++head) {
          const kernels::WeightBounds::Head found = bounds.head(0, head);
          ASSERT_GE(static_cast<Exact>(found.centre_norm), exact_norm(found.centre, nullptr, 16));
          std::vector<Exact> norms, radii;
          for (int64_t j = 0; j < length; ++j) {
            const float* const row = t.k.data<float>() + (j * 2 + head / 2) * 16;
            norms.push_back(exact_norm(row, nullptr, 16));
            radii.push_back(exact_norm(row, found.centre, 16));
          }
          const auto slope = [](float natural) { return static_cast<Exact>(natural) * exact_log2e; };
          const auto at = static_cast<size_t>(head);
          const Side before{found, true, slope(options.alibi_slopes[at]), norms, radii};
          const Side after{found, false, slope(options.alibi_slopes_after[at]), norms, radii};
          for (int64_t block = 0; block <= 4; ++block) {
            for (const Side* side : {&before, &after}) ASSERT_NO_FATAL_FAILURE(side->check(block)) << "head " << head;
          }
        }
      }
    }
  });
}

/// A part of the tolerance covers rounding errors that do not depend on the scores (docs/explanation/skip-rule.md).
TEST(AttentionSkipBounds, TheBudgetIsLessThanTheTolerance) {
  AttentionTensors t({.queries = 4, .keys = 4});
  for (const float tolerance : {0x1p-24f, 0.01f, 0.9f}) {
    for (const bool causal : {true, false}) {
      const AttentionOptions options{.alibi_slopes = {1}, .causal = causal, .tolerance = tolerance};
      const float budget = kernels::skip_budget(kernels::make_problem("test", t.q, t.k, t.v, t.out, options));
      const double all = static_cast<double>(tolerance) / (causal ? 1 : 2);  // each direction may use half
      EXPECT_NEAR(static_cast<double>(budget) / all, 1 - 0x1p-9, 1e-6);
    }
  }
}

/// The weight of one block, for slopes from those at which all keys count to those at which powers underflow.
TEST(AttentionSkipBounds, OfOneBlockAreAtLeastTheExactSum) {
  constexpr int64_t heads = 64, keys = kernels::key_rows + 20;  // the second block's keys lie 44 and more from its edge
  for_each_isa([&] {
    for (const float scale : {0.0f, 0.01f, 1.0f}) {
      AttentionTensors t({.queries = 40, .keys = keys, .heads = heads, .kv_heads = 1, .input_scale = scale});
      AttentionOptions options{.causal = false, .tolerance = 0x1p-24f};
      for (int64_t head = 0; head < heads; ++head)
        options.alibi_slopes.push_back(0.01f * std::pow(1.14f, static_cast<float>(head)));
      const kernels::Problem problem = kernels::make_problem("test", t.q, t.k, t.v, t.out, options);
      kernels::WeightBounds bounds(problem, kernels::key_rows);
      for (const int64_t block : {0, 1}) {
        kernels::measure_keys(problem, 0, 0, block, bounds);
        for (int64_t head = 0; head < heads; ++head) {
          const kernels::WeightBounds::Head found = bounds.head(0, head);
          const Exact slope = static_cast<Exact>(options.alibi_slopes[static_cast<size_t>(head)]) * exact_log2e;
          for (size_t e = 0; e < kernels::WeightBounds::levels; ++e) {
            std::vector<Exact> before, from;
            for (int64_t y = 0; y < std::min(kernels::key_rows, keys - block * kernels::key_rows); ++y) {
              const float* const row = t.k.data<float>() + (block * kernels::key_rows + y) * 16;
              const Exact score = static_cast<Exact>(found.x[e]) * exact_norm(row, found.centre, 16);
              before.push_back(score - slope * static_cast<Exact>(kernels::key_rows - 1 - y));
              from.push_back(score - slope * static_cast<Exact>(y));
            }
            SCOPED_TRACE(fmt::format("keys of {}, slope {}, block {}, level {}", scale,
                                     options.alibi_slopes[static_cast<size_t>(head)], block, e));
            ASSERT_GE(static_cast<Exact>(bounds.block_before(0, head, block)[e]), exact_log2_sum(before));
            ASSERT_GE(static_cast<Exact>(bounds.block_from(0, head, block)[e]), exact_log2_sum(from));
          }
        }
      }
    }
  });
}

/// Sums over blocks. The weights of the blocks are given here, so that only the rounding of the sum remains.
TEST(AttentionSkipBounds, SumsOverBlocksAreRoundedUp) {
  constexpr int64_t blocks = 40, rows = 64;
  AttentionTensors t({.queries = 1, .keys = blocks * rows, .heads = 4, .kv_heads = 1});
  const AttentionOptions options{.alibi_slopes = {0.5f, 1e-3f, 0, 30}, .causal = false, .tolerance = 0x1p-24f};
  const kernels::Problem problem = kernels::make_problem("test", t.q, t.k, t.v, t.out, options);
  const core::Random random(7);
  uint64_t drawn = 0;
  for (const double size : {1e-3, 1.0, 30.0, 1e3, 1e6}) {
    kernels::WeightBounds bounds(problem, rows);
    for (int64_t head = 0; head < 4; ++head) {
      for (int64_t block = 0; block < blocks; ++block) {
        for (float& value : bounds.block_before(0, head, block)) {
          value = static_cast<float>(size * static_cast<double>(random.normal(drawn++)));
        }
        bounds.block_from(0, head, block) = bounds.block_before(0, head, block);
      }
    }
    const auto given = [&](int64_t head) {
      std::vector<kernels::WeightBounds::Values> values;
      for (int64_t block = 0; block < blocks; ++block) values.push_back(bounds.block_before(0, head, block));
      return values;
    };
    std::vector<std::vector<kernels::WeightBounds::Values>> values;
    for (int64_t head = 0; head < 4; ++head) values.push_back(given(head));
    bounds.accumulate();
    for (int64_t head = 0; head < 4; ++head) {
      const kernels::WeightBounds::Head found = bounds.head(0, head);
      const Exact farther = static_cast<Exact>(options.alibi_slopes[static_cast<size_t>(head)]) * exact_log2e * rows;
      for (size_t e = 0; e < kernels::WeightBounds::levels; ++e) {
        for (int64_t edge = 1; edge < blocks; ++edge) {
          std::vector<Exact> before, from;
          for (int64_t block = 0; block < blocks; ++block) {
            const auto value = static_cast<Exact>(values[static_cast<size_t>(head)][static_cast<size_t>(block)][e]);
            const auto away = static_cast<Exact>(block < edge ? edge - 1 - block : block - edge);
            (block < edge ? before : from).push_back(value - away * farther);
          }
          ASSERT_GE(static_cast<Exact>(found.before[edge][e]), exact_log2_sum(before)) << size << " " << edge;
          ASSERT_GE(static_cast<Exact>(found.from[edge][e]), exact_log2_sum(from)) << size << " " << edge;
        }
      }
    }
  }
}

}  // namespace
}  // namespace alibi::kernels
