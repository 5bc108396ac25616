// What evicting the oldest keys of a cache with gates can cost any later query (docs/explanation/skip-rule.md, "Keys
// that no later query needs").
#include <algorithm>
#include <cmath>
#include <numbers>
#include <vector>

#include "attention/decode/evicted_keys.h"
#include "attention/decode/kv_cache_state.h"
#include "attention/decode/q8_rows.h"
#include "attention/problem.h"
#include "core/check.h"
#include "core/parallel.h"

namespace alibi {
namespace kernels {
namespace {

constexpr double log2e = std::numbers::log2e;

/// The keys from some block on, as a query sees them: the log2 of their weights without scores, and how far their
/// weighted mean is from the centre.
struct KeptKeys {
  double biases = -HUGE_VAL, distance = 0;
};

class OldestKeys {
 public:
  OldestKeys(const core::StateOf<KvCache>& cache, const Problem& problem, int64_t batch, int64_t head)
      : cache_(cache),
        problem_(problem),
        batch_(batch),
        kv_head_(head / problem.group()),
        bias_(problem.bias(problem.sequences[static_cast<size_t>(batch)], head)),
        centre_(cache.centre(of_cache())),
        error_(static_cast<double>(cache.errors.longest(of_cache()))) {
    const auto at = static_cast<size_t>(batch * problem.heads + head);
    if (at < cache.evicted_weights.size()) evicted_ = cache.evicted_weights[at];
  }

  /// Entry n is the bound if n more blocks are evicted.
  std::vector<double> shares(double query_norm) {
    const std::vector<KeptKeys> kept = kept_from_each_block();
    const int64_t first = cache_.begin(kv_head_) / cache_block;
    const Roundings roundings = Roundings::of_evicted(problem_);
    SkipRow<double> row = {
        .norm = std::abs(static_cast<double>(problem_.scale)) * query_norm * log2e, .product = 0, .share = 0, .top = 0};
    std::vector<double> result;
    for (size_t n = 0; n < kept.size(); ++n) {
      if (n > 0) {
        const int64_t block = first + static_cast<int64_t>(n) - 1;
        const KeyBounds bounds = bounds_of_block(cache_, of_cache(), block);
        evicted_.add(bias_.decay, {block * cache_block, (block + 1) * cache_block}, bounds.norm, bounds.radius);
      }
      if (evicted_.empty()) {
        result.push_back(-HUGE_VAL);
        continue;
      }
      row.top = kept[n].biases - lowest_score(row.norm, kept[n]);
      if (problem_.softcap > 0) row.product = row.norm * norm_of(centre_, cache_.stride);
      const double share = evicted_.log2_weight(row, bias_, cache_.length - 1, roundings) / log2e;
      result.push_back(std::max(result.empty() ? -HUGE_VAL : result.back(), std::isnan(share) ? HUGE_VAL : share));
    }
    return result;
  }

 private:
  int64_t of_cache() const { return batch_ * cache_.kv_heads + kv_head_; }

  /// By how much the mean score of the kept keys can be below that of the centre. Their weights sum to at least those
  /// that they would have with equal scores of this mean, because exp is convex. A cap is not linear in the query, so
  /// with one it is the lowest score of any key.
  double lowest_score(double norm, const KeptKeys& kept) const {
    if (problem_.softcap == 0) return norm * (kept.distance + error_);
    const double longest = static_cast<double>(cache_.norms.longest(of_cache())) + error_;
    return std::min(norm * longest, static_cast<double>(problem_.softcap) * log2e);
  }

  /// Entry n: without the first n blocks of the kept keys. A block that is not whole is never evicted.
  std::vector<KeptKeys> kept_from_each_block() const {
    const int64_t last = cache_.length - 1, first = cache_.begin(kv_head_) / cache_block;
    std::vector<KeptKeys> result(static_cast<size_t>(cache_.length / cache_block - first + 1));
    std::vector<double> sum(static_cast<size_t>(problem_.head_dim));
    std::vector<float> wide(static_cast<size_t>(cache_.stride));
    double weights = 0;
    for (int64_t block = last / cache_block; block >= first; --block) {
      const int64_t end = std::min(cache_.length, (block + 1) * cache_block);
      const auto* rows = static_cast<const char*>(cache_.key_rows(batch_, kv_head_, block * cache_block));
      for (int64_t key = block * cache_block; key < end; ++key, rows += cache_.row_bytes()) {
        const double weight = std::exp2(bias_->precise_at(last - key) * log2e - gates_in_log2(bias_.decay, key, last));
        weights += weight;
        if (weight == 0) continue;
        if (cache_.dtype == DType::q8_0) {
          widen_blocks(reinterpret_cast<const q8_block*>(rows), cache_.row_elements(), wide.data());
        }
        for (int64_t d = 0; d < problem_.head_dim; ++d) {
          const float x =
              cache_.dtype == DType::q8_0 ? wide[static_cast<size_t>(d)] : load_value(cache_.dtype, rows, d);
          sum[static_cast<size_t>(d)] += weight * static_cast<double>(x);
        }
      }
      if (block - first >= std::ssize(result)) continue;
      double squares = 0;
      for (int64_t d = 0; d < problem_.head_dim; ++d) {
        const double x = sum[static_cast<size_t>(d)] / weights - static_cast<double>(centre_[d]);
        squares += x * x;
      }
      result[static_cast<size_t>(block - first)] = {std::log2(weights), std::sqrt(squares)};
    }
    return result;
  }

  const core::StateOf<KvCache>& cache_;
  const Problem& problem_;
  int64_t batch_, kv_head_;
  HeadBias bias_;
  const float* centre_;
  double error_;
  EvictedWeights evicted_;
};

}  // namespace

std::vector<std::vector<double>> shares_of_oldest_keys(const KvCache& cache, const AttentionOptions& options,
                                                       std::span<const double> query_norms) {
  constexpr const char* operation = "evict_negligible";
  const core::StateOf<KvCache>& held = core::state_of(cache);
  held.check_on_cpu("evict_negligible()");
  check_cached_options(operation, options);
  const int64_t heads = held.decays.heads();
  check_usage(heads > 0 && held.length > 0, "[{}] the cache has no gates, expected keys with log_decay", operation);
  check_usage(std::ssize(query_norms) == heads, "[{}] found {} norms of queries, expected one for each of {} heads",
              operation, query_norms.size(), heads);
  for (const double norm : query_norms) {
    check_usage(norm >= 0, "[{}] a norm of queries is {}, expected at least 0", operation, norm);
  }
  // Only the shapes and the types of these tensors are used.
  const DType type = numbers_in(held.dtype) > 1 ? DType::float32 : held.dtype;
  const Tensor q = Tensor::view(held.k.raw(), {held.batch, 1, heads, held.head_dim}, type);
  const Tensor keys = held.as_seen(type);
  Problem problem = make_problem(operation, q, keys, keys, q, options);
  add_gates(operation, held, problem);
  check_usage(!problem.has_table(), "[{}] the bias is a table, expected slopes or none beside the gates", operation);

  std::vector<std::vector<double>> of_rows(static_cast<size_t>(held.batch * heads));
  core::parallel_for(held.batch * heads, [&](int64_t at) {
    const auto h = static_cast<size_t>(at % heads);
    of_rows[static_cast<size_t>(at)] = OldestKeys(held, problem, at / heads, at % heads).shares(query_norms[h]);
  });
  std::vector<std::vector<double>> result(static_cast<size_t>(held.kv_heads));
  for (int64_t at = 0; at < held.batch * heads; ++at) {
    std::vector<double>& worst = result[static_cast<size_t>(at % heads / problem.group())];
    const std::vector<double>& shares = of_rows[static_cast<size_t>(at)];
    worst.resize(shares.size(), -HUGE_VAL);
    for (size_t n = 0; n < shares.size(); ++n) worst[n] = std::max(worst[n], shares[n]);
  }
  return result;
}

}  // namespace kernels

int64_t KvCache::evict_negligible(double tolerance, std::span<const double> query_norms,
                                  const AttentionOptions& options, int64_t room) {
  check_usage(tolerance > 0 && tolerance < 1, "[evict_negligible] tolerance is {}, expected above 0 and below 1",
              tolerance);
  const auto shares = kernels::shares_of_oldest_keys(*this, options, query_norms);
  std::vector<int64_t> begins = state_->begins;
  int64_t evicted = 0;
  for (size_t h = 0; h < begins.size(); ++h) {
    const auto end = std::upper_bound(shares[h].begin(), shares[h].end(), std::log(tolerance));
    const int64_t blocks = std::max<int64_t>(0, end - shares[h].begin() - 1);
    begins[h] += blocks * kernels::cache_block;
    evicted += blocks * kernels::cache_block * batch();
  }
  evict(begins, room);
  return evicted;
}

}  // namespace alibi
