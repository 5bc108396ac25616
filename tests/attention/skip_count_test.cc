// Which blocks the skip rule skips: the numbers of visited blocks are those of the rule written here in float64. A term
// that makes the rule skip too much or too little changes these numbers long before it changes an output.
#include <cmath>
#include <functional>
#include <numbers>

#include "alibi/kv_cache.h"
#include "attention/amx/cases.h"
#include "attention/cases.h"
#include "attention/decode/kv_cache_norms.h"
#include "attention/problem.h"
#include "attention/skip/norms.h"
#include "attention/vector/tasks.h"

namespace alibi::kernels {
namespace {

using namespace test;

struct Uniform {
  int64_t length = 0;
  float slope = 0;
  float tolerance = 0;
  double score = 0;  ///< of every query with every key
  bool causal = true;
};

/// Queries and keys that are all equal, so that every norm and every score is known.
AttentionTensors tensors_of(const Uniform& u, DType dtype = DType::float32) {
  AttentionTensors t({.queries = u.length, .keys = u.length, .head_dim = 16, .dtype = dtype});
  const auto value = static_cast<float>(std::sqrt(u.score / 4));  // scale 1/4, 16 products
  t.q.fill(value);
  t.k.fill(value);
  return t;
}

AttentionOptions options_of(const Uniform& u) {
  return {.alibi_slopes = {u.slope}, .causal = u.causal, .tolerance = u.tolerance};
}

/// The rule for the vector kernels' blocks (src/attention/skip.h, with the roundings of skip-inl.h). All keys are equal
/// to their centre, so the bound on the remaining weights is their sum.
class Rule {
 public:
  Rule(const Uniform& u, const kernels::Problem& problem)
      : u_(u), problem_(problem), slope_(static_cast<double>(u.slope)) {
    constexpr double log2e = std::numbers::log2e;
    top_ = u.score * log2e;
    reach_ = 2 * u.score * log2e;  // of the key and of the centre, whose products are rounded
    slope2_ = slope_ * log2e;
    slack_ = 0x1p-20 + 16 * 0x1p-23;
  }

  /// The budget that is left, in powers of two, if the query at `position`, which has visited the keys [begin, end),
  /// skips `remaining` keys at distance `distance` or more.
  double left(int64_t position, int64_t begin, int64_t end, int64_t remaining, int64_t distance) {
    // The weights visited, in units of the key at the query's position.
    double sum = begin <= position ? series(position - std::min(position, end - 1), position - begin) : 0;
    if (!u_.causal && end - 1 > position) sum += series(std::max(begin, position + 1) - position, end - 1 - position);
    const double penalty = slope2_ * static_cast<double>(distance);
    const double weights = std::log2(series(0, remaining - 1));  // of keys that follow each other from `distance` on
    const double owed = weights - penalty + slack_ * (reach_ + penalty + top_ + std::abs(weights));
    return std::log2(static_cast<double>(kernels::skip_budget(problem_)) * sum) - owed;
  }

  /// A block of queries may skip keys if each of them has budget left.
  bool holds(int64_t row, int64_t rows, const std::function<double(int64_t position)>& left) {
    double least = INFINITY;
    for (int64_t i = row; i < row + rows; ++i) least = std::min(least, left(i));
    margin_ = std::min(margin_, std::abs(least));
    return least >= 0;
  }
  /// How close a decision was. The kernels decide in float32.
  double margin() const { return margin_; }

 private:
  /// Sum of exp(-slope d) for d in [first, last].
  double series(int64_t first, int64_t last) const {
    const auto at = [&](int64_t d) { return std::exp(-slope_ * static_cast<double>(d)); };
    return (at(first) - at(last + 1)) / -std::expm1(-slope_);
  }

  const Uniform& u_;
  const kernels::Problem& problem_;
  double slope_, top_, reach_, slope2_, slack_;
  double margin_ = INFINITY;
};

/// Key blocks that the query block [row, row + rows) visits, from the block of `diagonal` backwards and then forwards.
int64_t blocks_visited(const Uniform& u, Rule& rule, int64_t row, int64_t rows, int64_t diagonal) {
  constexpr int64_t size = kernels::key_rows;
  const int64_t last = (u.causal ? row + rows - 1 : u.length - 1) / size;  // block that any row sees
  int64_t begin = diagonal + 1;
  for (; begin > 0; --begin) {
    const int64_t end = begin * size;  // keys before it remain
    const int64_t visited = std::min((diagonal + 1) * size, u.length);
    if (end <= row &&
        rule.holds(row, rows, [&](int64_t i) { return rule.left(i, end, visited, end, i - (end - 1)); })) {
      break;
    }
  }
  int64_t end = diagonal + 1;
  for (; !u.causal && end <= last; ++end) {
    const int64_t next = end * size;  // keys from it on remain
    if (next > row + rows - 1 &&
        rule.holds(row, rows, [&](int64_t i) { return rule.left(i, begin * size, next, u.length - next, next - i); })) {
      break;
    }
  }
  return std::min(end, last + 1) - begin;
}

TEST(AttentionSkipCounts, AreThoseOfTheRule) {
  const Uniform cases[] = {
      {.length = 1500, .slope = 0.05f, .tolerance = 0x1p-24f},                   // the geometric series counts
      {.length = 1500, .slope = 1e-3f, .tolerance = 0.3f},                       // the number of keys counts
      {.length = 1500, .slope = 0.02f, .tolerance = 0x1p-9f, .score = 1e5},      // the roundings count
      {.length = 1100, .slope = 0.05f, .tolerance = 0x1p-12f, .causal = false},  // the same both ways
      {.length = 1100, .slope = 3e-3f, .tolerance = 0.4f, .causal = false},
      {.length = 1100, .slope = 0.03f, .tolerance = 0x1p-9f, .score = 1e5, .causal = false},
  };
  for (const Uniform& u : cases) {
    SCOPED_TRACE(fmt::format("slope {} tolerance {} score {} causal {}", u.slope, u.tolerance, u.score, u.causal));
    AttentionTensors t = tensors_of(u);
    const AttentionOptions options = options_of(u);
    const kernels::Problem problem = kernels::make_problem("test", t.q, t.k, t.v, t.out, options);
    Rule rule(u, problem);
    int64_t expected = 0, total = 0;
    for (const kernels::QueryTask& task : kernels::query_tasks(problem)) {
      const int64_t diagonal = (task.rows.end - 1) / kernels::key_rows;
      for (int64_t row = task.rows.begin; row < task.rows.end; row += kernels::query_rows) {
        const int64_t rows = std::min(kernels::query_rows, task.rows.end - row);
        const int64_t own = u.causal ? (row + rows - 1) / kernels::key_rows : diagonal;
        expected += blocks_visited(u, rule, row, rows, own);
        total += u.causal ? own + 1 : (u.length + kernels::key_rows - 1) / kernels::key_rows;
      }
    }
    ASSERT_GT(rule.margin(), u.score > 0 ? 5e-2 : 1e-4) << "a decision that rounding could turn";
    ASSERT_LT(expected, total) << "nothing is skipped";
    for_each_isa([&] {
      t.forward(options);
      EXPECT_EQ(t.state.stats.blocks_total, total);
      EXPECT_EQ(t.state.stats.blocks_visited, expected);
    });
  }
}

/// Key blocks of 32 that a block of 32 queries visits on AMX (src/attention/amx/skip.h). The rule is applied before the
/// first key is read, when each query knows a bound on the score of the key at its position, and after eight blocks.
class AmxRule {
 public:
  explicit AmxRule(const Uniform& u) : u_(u), slope_(static_cast<double>(u.slope)) {
    top_ = u.score * std::numbers::log2e;
    log_budget_ = std::log2(static_cast<double>(u.tolerance) / (u.causal ? 1 : 2) * (1 - 0x1p-9));
  }

  int64_t blocks_visited(int64_t row, int64_t rows) {
    const int64_t blocks = (u_.length + 31) / 32, own = (row + rows - 1) / 32 + 1;
    int64_t low = 0, high = u_.causal ? own : blocks, left = own, right = own;
    const auto narrow = [&](const std::function<double(int64_t)>& sum) {
      const auto negligible = [&](int64_t begin, int64_t end) {
        double most = -INFINITY;
        for (int64_t i = row; i < row + rows; ++i) most = std::max(most, excess(i, begin, end, sum(i)));
        margin_ = std::min(margin_, std::abs(most));
        return most <= 0;
      };
      int64_t block = left;
      while (block > low && !negligible(0, 32 * block)) --block;
      low = block;
      block = right;
      while (block < high && !negligible(32 * block, u_.length)) ++block;
      high = block;
    };
    narrow([&](int64_t) { return 1.0; });
    while (left > low || right < high) {
      if (left > low) {
        left = std::max(left - 8, low);
      } else {
        right = std::min(right + 8, high);
      }
      narrow([&](int64_t i) {
        const int64_t end = std::min(32 * right, u_.length);
        return weights(i, 32 * left, u_.causal ? std::min(end, i + 1) : end);
      });
    }
    return right - left;
  }

  /// How close a decision was.
  double margin() const { return margin_; }

 private:
  /// The weight of the keys [begin, end) over the weight that they may have, in powers of two.
  double excess(int64_t position, int64_t begin, int64_t end, double sum) const {
    const double nearest = static_cast<double>(begin == 0 ? position - (end - 1) : begin - position);
    const double slope = slope_ * std::numbers::log2e;
    double all = 0;  // in units of the nearest
    for (int64_t j = begin; j < end; ++j) {
      all += std::exp(-slope_ * static_cast<double>(begin == 0 ? end - 1 - j : j - begin));
    }
    const double slack = 3 * top_ * 0x1p-12 + 0x1p-6 + 0x1p-20 * (std::abs(slope * nearest) + std::log2(all));
    return std::log2(all) - slope * nearest - std::log2(sum) - log_budget_ + slack;
  }
  double weights(int64_t position, int64_t begin, int64_t end) const {
    double sum = 0;
    for (int64_t j = begin; j < end; ++j) sum += std::exp(-slope_ * static_cast<double>(std::abs(position - j)));
    return sum;
  }

  const Uniform& u_;
  double slope_, top_, log_budget_;
  double margin_ = INFINITY;
};

using AttentionSkipCountsInBf16 = AttentionAmx;

TEST_P(AttentionSkipCountsInBf16, AreThoseOfTheRule) {
  const double large = 16.0 * 16 * 4;  // queries and keys of 16: beyond the softmax without a maximum
  const Uniform cases[] = {
      {.length = 1000, .slope = 0.05f, .tolerance = 0x1p-11f},
      {.length = 1000, .slope = 9e-4f, .tolerance = 0.9f},
      {.length = 1000, .slope = 0.02f, .tolerance = 0x1p-9f, .score = large},
      {.length = 700, .slope = 0.05f, .tolerance = 0x1p-11f, .causal = false},
      {.length = 700, .slope = 0.033f, .tolerance = 0x1p-9f, .score = large, .causal = false},
  };
  for (const Uniform& u : cases) {
    SCOPED_TRACE(fmt::format("slope {} tolerance {} score {} causal {}", u.slope, u.tolerance, u.score, u.causal));
    AttentionTensors t = tensors_of(u, DType::bfloat16);
    AmxRule rule(u);
    int64_t expected = 0;
    for (int64_t row = 0; row < u.length; row += 32) {
      expected += rule.blocks_visited(row, std::min<int64_t>(32, u.length - row));
    }
    ASSERT_GT(rule.margin(), 1e-3) << "a decision that rounding could turn";
    t.forward(options_of(u));
    ASSERT_LT(expected, t.state.stats.blocks_total) << "nothing is skipped";
    EXPECT_EQ(t.state.stats.blocks_visited, expected);
  }
}

ALIBI_TEST_ON_BF16_ISAS(AttentionSkipCountsInBf16);

/// Decoding spends its budget on the oldest keys first, node by node of its tree. If all keys are equal, the bound of a
/// node is the exact sum of its weights, so as many blocks are dropped as fit the budget.
TEST(DecodeSkipCounts, AreWhatTheBudgetPaysFor) {
  constexpr int64_t keys = 5000, block = kernels::cache_block, near = 2 * block;
  const Tensor k({1, keys, 1, 16}), v({1, keys, 1, 16}), q({1, 1, 1, 16});
  KvCache cache(1, 1, 16);
  cache.append(k, v);
  for (const bool causal : {true, false}) {  // both ways: from the middle
    const int64_t position = causal ? keys - 1 : 2511;
    for (const float slope : {0.1f, 0.01f, 2e-3f}) {
      for (const float tolerance : {0x1p-24f, 1e-3f, 0.1f}) {
        SCOPED_TRACE(fmt::format("slope {} tolerance {} causal {}", slope, tolerance, causal));
        const auto weight = [&](int64_t j) {
          return std::exp(-static_cast<double>(slope) * static_cast<double>(std::abs(position - j)));
        };
        const int64_t near_begin = (position - near + 1) / block * block;
        const int64_t near_end = std::min(keys, (position + near + block - 1) / block * block);
        double sum = 0;
        for (int64_t j = near_begin; j < (causal ? position + 1 : near_end); ++j) sum += weight(j);
        const double budget = static_cast<double>(causal ? tolerance : tolerance / 2) * (1 - 0x1p-9) * sum;
        int64_t begin = 0, end = keys;
        for (double spent = 0; begin < near_begin; begin += block) {
          for (int64_t j = begin; j < begin + block; ++j) spent += weight(j);
          if (spent > budget) break;
        }
        for (double spent = 0; end > near_end;) {
          const int64_t first = (end - 1) / block * block;
          for (int64_t j = first; j < end; ++j) spent += weight(j);
          if (spent > budget) break;
          end = first;
        }
        Tensor out = Tensor::empty(q.shape());
        AttentionState state;
        const AttentionOptions options{
            .alibi_slopes = {slope}, .causal = causal, .query_offset = position, .tolerance = tolerance};
        attention_decode(q, cache, options, out, &state);
        EXPECT_EQ(state.stats.blocks_visited, (end + block - 1) / block - begin / block);
      }
    }
  }
}

}  // namespace
}  // namespace alibi::kernels
