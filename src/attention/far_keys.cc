#include "attention/far_keys.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/skip.h"
#include "core/check.h"

namespace alibi::kernels {
namespace {

constexpr float closed = std::numeric_limits<float>::infinity();

/// Queries that are tested together.
constexpr int64_t query_rows = 64;

/// Covers the rounding errors of scores, norms and the log-sum-exp, which are float32.
double slack(double lse) { return 0.01 + 0x1p-20 * std::abs(lse); }

/// Calls use(i, value) for the values of a row.
template <class Use>
void each_value(const Tensor& rows, int64_t row, int64_t head, const Use& use) {
  const int64_t at = row * rows.stride(1) + head * rows.stride(2);
  if (rows.dtype() == DType::bfloat16) {
    const bfloat16* const values = rows.data<bfloat16>() + at;
    for (int64_t i = 0; i < rows.size(3); ++i) use(i, static_cast<float>(values[i]));
  } else {
    const float* const values = rows.data<float>() + at;
    for (int64_t i = 0; i < rows.size(3); ++i) use(i, values[i]);
  }
}

const std::vector<float>& slopes_after(const AttentionOptions& options) {
  return options.alibi_slopes_after.empty() ? options.alibi_slopes : options.alibi_slopes_after;
}

}  // namespace

bool FarKeys::are_bounded(const AttentionOptions& options) {
  const auto all_positive = [](const std::vector<float>& slopes) {
    return !slopes.empty() && std::all_of(slopes.begin(), slopes.end(), [](float slope) { return slope > 0; });
  };
  // The bound is that of scores without a cap: a cap makes negative scores larger.
  return options.tolerance > 0 && options.softcap == 0 && all_positive(options.alibi_slopes) &&
         all_positive(slopes_after(options));
}

FarKeys::FarKeys(const AttentionOptions& options, int64_t heads, int64_t kv_heads, int64_t head_dim)
    : options_(options),
      heads_(heads),
      kv_heads_(kv_heads),
      head_dim_(head_dim),
      scale_(options.softmax_scale != 0 ? static_cast<double>(options.softmax_scale)
                                        : 1 / std::sqrt(static_cast<double>(head_dim))),
      centre_(static_cast<size_t>(kv_heads * head_dim), 0.0),
      radii_(static_cast<size_t>(kv_heads)) {
  check(are_bounded(options) && std::ssize(options.alibi_slopes) == heads,
        "[far keys] expected a tolerance above 0 and a slope above 0 for each of {} heads", heads);
  before_.slopes = options.alibi_slopes;
  after_.slopes = options.causal ? std::vector<float>(static_cast<size_t>(heads), closed) : slopes_after(options);
  for (Side* const side : {&before_, &after_}) {
    side->farther.resize(static_cast<size_t>(kv_heads));
    // A guess, for keys that differ little: the penalty alone reaches the tolerance.
    for (const float slope : side->slopes) {
      const double distance = (std::log(4 / static_cast<double>(options.tolerance)) + 4) / static_cast<double>(slope);
      side->reach = std::max(side->reach, static_cast<int64_t>(std::min(distance, 0x1p40)) / block_rows);
    }
  }
}

void FarKeys::add(const Tensor& k) {
  check(keys_ % block_rows == 0, "[far keys] {} keys were added before, expected a multiple of {}", keys_, block_rows);
  const int64_t rows = k.size(1);
  if (keys_ == 0) {
    for (int64_t head = 0; head < kv_heads_; ++head) {
      double* const centre = centre_.data() + head * head_dim_;
      for (int64_t row = 0; row < rows; ++row) {
        each_value(k, row, head, [&](int64_t i, float x) { centre[i] += static_cast<double>(x); });
      }
      for (int64_t i = 0; i < head_dim_; ++i) {
        centre[i] /= static_cast<double>(rows);
        if (!std::isfinite(centre[i])) centre[i] = 0;  // any centre is right
      }
    }
  }
  const int64_t first = blocks(), count = core::ceil_div(rows, block_rows);
  for (auto& radii : radii_) radii.resize(static_cast<size_t>(first + count));
  core::parallel_for(kv_heads_ * count, [&](int64_t task) {
    const int64_t head = task / count, block = task % count;
    const double* const centre = centre_.data() + head * head_dim_;
    double most = 0;
    for (int64_t row = block * block_rows; row < std::min(rows, (block + 1) * block_rows); ++row) {
      double squares = 0;
      each_value(k, row, head, [&](int64_t i, float x) {
        const double difference = static_cast<double>(x) - centre[i];
        squares += difference * difference;
      });
      if (!(squares <= most)) most = std::isfinite(squares) ? squares : HUGE_VAL;
    }
    radii_[static_cast<size_t>(head)][static_cast<size_t>(first + block)] =
        static_cast<float>(std::sqrt(most) * (1 + 0x1p-20));
  });
  keys_ += rows;
  for (auto& farther : before_.farther) farther.clear();
}

AttentionOptions FarKeys::options_within(int64_t first_query, const Range& range) const {
  AttentionOptions options = options_;
  options.tolerance /= 2;
  options.query_offset = first_query - range.begin;
  return options;
}

Range FarKeys::expected(const Range& queries) const {
  const int64_t first = queries.begin / block_rows - before_.reach - 1;
  const int64_t last = core::ceil_div(queries.end, block_rows) + (options_.causal ? 0 : after_.reach + 1);
  return {std::max<int64_t>(0, first) * block_rows, std::min(keys_, last * block_rows)};
}

FarKeys::Queries FarKeys::reduced(const Tensor& q, const Tensor& lse, int64_t begin, int64_t end, int64_t head) const {
  Queries result{.budget = HUGE_VAL};
  const double* const centre = centre_.data() + head / (heads_ / kv_heads_) * head_dim_;
  const float* const of_head = lse.data<float>() + head * lse.size(2);
  const double share = std::log(static_cast<double>(options_.tolerance) / 4);  // half of the tolerance for two sides
  for (int64_t row = begin; row < end; ++row) {
    double squares = 0, product = 0;
    each_value(q, row, head, [&](int64_t i, float value) {
      const auto x = static_cast<double>(value);
      squares += x * x;
      product += x * centre[i];
    });
    const auto sum = static_cast<double>(of_head[row]);
    const double budget = share + sum - slack(sum) - scale_ * product;
    if (!(budget >= result.budget)) result.budget = std::isfinite(budget) ? budget : -HUGE_VAL;
    const double length = std::abs(scale_) * std::sqrt(squares);
    if (!(length <= result.length)) result.length = length;
  }
  return result;
}

bool FarKeys::negligible(const Queries& queries, const Side& side, int64_t head, int64_t block, int64_t distance,
                         int64_t step) const {
  const auto slope = static_cast<double>(side.slopes[static_cast<size_t>(head)]);
  if (side.slopes[static_cast<size_t>(head)] == closed) return true;
  const auto kv_head = static_cast<size_t>(head / (heads_ / kv_heads_));
  const double weight_of_block = weight_of_keys(slope, block_rows), weight_of_all = -1 / std::expm1(-slope);
  double left = 1;  // part of the budget
  for (; block >= 0 && block < blocks(); block += step, distance += block_rows) {
    const auto at = static_cast<size_t>(block);
    const double penalty = slope * static_cast<double>(distance) + queries.budget;
    const auto farther = static_cast<double>(side.farther[kv_head][at]);
    if (std::exp(queries.length * farther - penalty) * weight_of_all <= left) return true;
    left -= std::exp(queries.length * static_cast<double>(radii_[kv_head][at]) - penalty) * weight_of_block;
    if (!(left > 0)) return false;
  }
  return true;
}

Range FarKeys::needed(const Tensor& q, int64_t first, const Tensor& lse) {
  if (before_.farther.front().empty()) {
    for (size_t head = 0; head < radii_.size(); ++head) {
      before_.farther[head] = after_.farther[head] = radii_[head];
      for (size_t b = 1; b < radii_[head].size(); ++b) {
        before_.farther[head][b] = std::max(before_.farther[head][b], before_.farther[head][b - 1]);
      }
      for (size_t b = radii_[head].size() - 1; b-- > 0;) {
        after_.farther[head][b] = std::max(after_.farther[head][b], after_.farther[head][b + 1]);
      }
    }
  }
  const int64_t rows = q.size(1), groups = core::ceil_div(rows, query_rows);
  std::vector<Queries> all(static_cast<size_t>(heads_ * groups));
  core::parallel_for(heads_ * groups, [&](int64_t task) {
    const int64_t begin = task % groups * query_rows, end = std::min(rows, begin + query_rows);
    Queries& queries = all[static_cast<size_t>(task)] = reduced(q, lse, begin, end, task / groups);
    queries.first = first + begin;
    queries.last = first + end - 1;
  });
  const int64_t nearest_before = first / block_rows;
  const int64_t nearest_after = core::ceil_div(first + rows, block_rows);
  int64_t low = nearest_before, high = nearest_after;  // blocks [low, high) are needed
  for (int64_t i = 0; i < heads_ * groups; ++i) {
    const Queries& queries = all[static_cast<size_t>(i)];
    const int64_t head = i / groups;
    const auto before = [&](int64_t block) {
      return negligible(queries, before_, head, block - 1, queries.first - block * block_rows + 1, -1);
    };
    const auto after = [&](int64_t block) {
      return negligible(queries, after_, head, block, block * block_rows - queries.last, 1);
    };
    while (low > 0 && !before(low)) --low;
    while (high < blocks() && !after(high)) ++high;
  }
  before_.reach = nearest_before - low;
  after_.reach = high - nearest_after;
  return {low * block_rows, std::min(keys_, high * block_rows)};
}

}  // namespace alibi::kernels
