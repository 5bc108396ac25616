#include "attention/skip/far_keys.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/check.h"

namespace alibi::kernels {
namespace {

/// Queries that are tested together.
constexpr int64_t query_rows = 64;

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

}  // namespace

bool FarKeys::are_bounded(const AttentionOptions& options) {
  // The bound is that of scores without a cap: a cap makes negative scores larger.
  if (options.tolerance == 0 || options.softcap != 0 || options.log_decay) return false;
  const Tensor table = options.buckets ? options.buckets->table : options.bias_by_distance.value_or(Tensor());
  const int64_t heads = table.defined() ? table.size(1) : std::ssize(options.alibi_slopes);
  const Biases biases = make_biases("far keys", options, 1, heads);
  for (int64_t head = 0; head < heads; ++head) {
    const auto falls = [&](Side side) { return biases.of(0, head).falls(side, options.tolerance); };
    if (!falls(Side::before) || !(options.causal || falls(Side::after))) return false;
  }
  return heads > 0;
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
  check(are_bounded(options), "[far keys] expected a tolerance above 0 and a bias that falls for each of {} heads",
        heads);
  biases_ = std::make_shared<const Biases>(make_biases("far keys", options, 1, heads));
  for (const Side side : {Side::before, Side::after}) {
    Reach& reach = side == Side::before ? before_ : after_;
    reach.farther.resize(static_cast<size_t>(kv_heads));
    // A guess, for keys that differ little: the biases alone reach the tolerance.
    constexpr int64_t many_keys = 1 << 20;
    for (int64_t head = 0; head < heads; ++head) {
      const double log_weight = std::log(static_cast<double>(options.tolerance) / 4);
      const double distance = biases_->of(0, head).horizon(side, log_weight, many_keys);
      reach.blocks = std::max(reach.blocks, static_cast<int64_t>(std::min(distance, 0x1p40)) / block_rows);
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
  const int64_t first = queries.begin / block_rows - before_.blocks - 1;
  const int64_t last = core::ceil_div(queries.end, block_rows) + (options_.causal ? 0 : after_.blocks + 1);
  return {std::max<int64_t>(0, first) * block_rows, std::min(keys_, last * block_rows)};
}

FarKeys::Queries FarKeys::reduced(const Tensor& q, const Tensor& lse, int64_t begin, int64_t end, int64_t head) const {
  Queries result{.row = {.norm = 0, .product = 0, .share = 0, .top = HUGE_VAL}};
  const double* const centre = centre_.data() + head / (heads_ / kv_heads_) * head_dim_;
  const float* const of_head = lse.data<float>() + head * lse.size(2);
  for (int64_t row = begin; row < end; ++row) {
    double squares = 0, product = 0;
    each_value(q, row, head, [&](int64_t i, float value) {
      const auto x = static_cast<double>(value);
      squares += x * x;
      product += x * centre[i];
    });
    const double sum = Roundings::lowered(static_cast<double>(of_head[row])) - scale_ * product;
    const double top = sum * std::numbers::log2e, norm = std::abs(scale_) * std::sqrt(squares) * std::numbers::log2e;
    if (!(top >= result.row.top)) result.row.top = std::isfinite(top) ? top : -HUGE_VAL;
    if (!(norm <= result.row.norm)) result.row.norm = norm;
  }
  return result;
}

bool FarKeys::negligible(const Queries& queries, Side side, int64_t head, int64_t block, int64_t distance) const {
  const Bias& bias = biases_->of(0, head);
  if (bias.beyond(side, distance) == -HUGE_VAL) return true;  // the direction is closed
  const auto kv_head = static_cast<size_t>(head / (heads_ / kv_heads_));
  const std::vector<float>& farther = (side == Side::before ? before_ : after_).farther[kv_head];
  const auto weight = [&](float radius, int64_t keys) {
    return std::exp2(log2_weight_of_key(queries.row, radius, radius, bias, side, distance, Roundings())) *
           weight_of_keys(bias.fall(side, 1), keys);
  };
  double left = static_cast<double>(options_.tolerance) / 4;  // half of the tolerance for two sides
  const int64_t step = side == Side::before ? -1 : 1;
  for (; block >= 0 && block < blocks(); block += step, distance += block_rows) {
    const auto at = static_cast<size_t>(block);
    const int64_t keys = side == Side::before ? (block + 1) * block_rows : keys_ - block * block_rows;
    if (weight(farther[at], keys) <= left) return true;
    left -= weight(radii_[kv_head][at], block_rows);
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
      return negligible(queries, Side::before, head, block - 1, queries.first - block * block_rows + 1);
    };
    const auto after = [&](int64_t block) {
      return options_.causal || negligible(queries, Side::after, head, block, block * block_rows - queries.last);
    };
    while (low > 0 && !before(low)) --low;
    while (high < blocks() && !after(high)) ++high;
  }
  before_.blocks = nearest_before - low;
  after_.blocks = high - nearest_after;
  return {low * block_rows, std::min(keys_, high * block_rows)};
}

}  // namespace alibi::kernels
