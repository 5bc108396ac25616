#include "attention/decode/eviction.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "attention/decode/evicted_keys.h"
#include "attention/decode/kv_cache_norms.h"
#include "attention/decode/kv_cache_state.h"
#include "core/check.h"
#include "core/format.h"
#include "core/parallel.h"

namespace alibi::kernels {
namespace {

using kernels::cache_block;

constexpr double no_limit = std::numeric_limits<double>::infinity();
/// Number of tokens that are read together for full speed, as in contexts without a limit.
constexpr int64_t max_together = 2048;
/// Keys that a head never evicts: those that decoding visits before it applies the skip rule.
constexpr int64_t min_kept = 2 * cache_block;
/// Tokens at the beginning of a text whose leads are ignored, because their rows have few keys.
constexpr int64_t unsettled = 64;
/// Share of the memory for norms and for the records of evicted keys.
constexpr double for_norms = 1.0 / 32;

}  // namespace

Eviction::Eviction(const EvictionOptions& options)
    : layers_(options.layers),
      heads_(options.heads),
      kv_heads_(options.kv_heads),
      window_(options.window),
      options_(options),
      biases_(static_cast<size_t>(layers_)),
      attention_(static_cast<size_t>(layers_)),
      leads_(static_cast<size_t>(layers_ * heads_), -no_limit),
      norms_(static_cast<size_t>(layers_ * heads_)),
      key_bytes_(2 * core::StateOf<KvCache>::bytes_of_row(options.head_dim, options.dtype)) {
  check_usage(!options.tolerance || (*options.tolerance > 0 && *options.tolerance < 1),
              "[context] eviction_tolerance is {}, expected above 0 and below 1", options.tolerance.value_or(0));
  tolerance_ = options.tolerance.value_or(options.dtype == DType::bfloat16 ? 0x1p-11 : 0x1p-24);

  const auto of_token = static_cast<double>(layers_ * kv_heads_);
  max_keys_ = options.memory ? static_cast<double>(*options.memory) * (1 - for_norms) / static_cast<double>(key_bytes_)
                             : no_limit;
  // A quarter of the memory is for the tokens that are read next, the rest for earlier ones.
  max_tokens_ = static_cast<int64_t>(std::min(max_keys_ / of_token / 4, static_cast<double>(max_together)));
  max_tokens_ = max_tokens_ / cache_block * cache_block;
  if (!options.memory) return;
  const double least = 6 * static_cast<double>(cache_block) * of_token;
  check_usage(
      max_keys_ >= least, "[context] {} of memory holds {} tokens of this model, expected at least {}, {}",
      core::format_bytes(*options.memory), static_cast<int64_t>(max_keys_ / of_token), 6 * cache_block,
      core::format_bytes(static_cast<int64_t>(std::ceil(least * static_cast<double>(key_bytes_) / (1 - for_norms)))));
}

double Eviction::horizon_of(int64_t layer, int64_t kv_head, double log_share, int64_t position) const {
  const int64_t group = heads_ / kv_heads_;
  double horizon = 0;
  for (int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
    static const LinearBias none(0, 0, true);
    const Biases* const biases = biases_[static_cast<size_t>(layer)].get();
    const Bias& bias = biases != nullptr ? biases->of(0, head) : none;
    const double seen = leads_[static_cast<size_t>(layer * heads_ + head)];
    // A later token may have a larger lead than all earlier ones when the keys that it needs are already evicted. So
    // the horizon allows for e^2 times the largest lead, and for an eighth more of the exponent, because leads grow
    // with the scores. Otherwise the first such token exceeds the tolerance and stops a context that must be exact.
    const double lead = seen > -no_limit ? seen + std::abs(seen) / 8 + 2 : 0;
    const double needed = bias.horizon(Side::before, log_share - lead, position);
    horizon = std::max(horizon, std::isnan(needed) ? no_limit : needed);
  }
  return horizon;
}

std::vector<std::vector<double>> Eviction::shares_of(int64_t layer, const KvCache& cache) const {
  const auto first = static_cast<size_t>(layer * heads_);
  std::vector<double> norms;
  for (size_t i = first; i < first + static_cast<size_t>(heads_); ++i) {
    constexpr double later = 1.25;  // of later queries
    norms.push_back(options_.query_norms.empty() ? later * norms_[i] : options_.query_norms[i]);
  }
  return shares_of_oldest_keys(cache, attention_[static_cast<size_t>(layer)], norms);
}

std::vector<int64_t> Eviction::plan(std::span<const KvCache> caches, double max_keys) const {
  std::vector<int64_t> begins(static_cast<size_t>(layers_ * kv_heads_));
  const int64_t position = caches.front().length();
  if (position == 0) return begins;
  const bool has_gates = core::state_of(caches.front()).decays.heads() > 0;
  std::vector<std::vector<std::vector<double>>> shares;  // [layer][kv_head], with gates
  for (int64_t layer = 0; has_gates && layer < layers_; ++layer) {
    shares.push_back(shares_of(layer, caches[static_cast<size_t>(layer)]));
  }
  /// The first key that a head needs if those before it may have the share exp(log_share) of each row's weight.
  const auto needed_from = [&](int64_t layer, int64_t h, double log_share) {
    double horizon;
    if (has_gates) {
      const std::vector<double>& of_head = shares[static_cast<size_t>(layer)][static_cast<size_t>(h)];
      const auto end = std::upper_bound(of_head.begin(), of_head.end(), log_share);
      const int64_t blocks = std::max<int64_t>(0, end - of_head.begin() - 1);
      horizon = static_cast<double>(position - caches[static_cast<size_t>(layer)].begin(h) - blocks * cache_block);
    } else {
      horizon = horizon_of(layer, h, log_share, position);
    }
    horizon = std::max(horizon, static_cast<double>(min_kept));
    if (window_ > 0)
      horizon = std::min(horizon, static_cast<double>(window_ - 1));  // keys beyond the window are not seen
    if (horizon >= static_cast<double>(position)) return int64_t{0};
    return (position - static_cast<int64_t>(std::ceil(horizon))) / cache_block * cache_block;
  };
  const auto keys_at = [&](double log_share) {
    double keys = 0;
    for (int64_t layer = 0; layer < layers_; ++layer) {
      for (int64_t h = 0; h < kv_heads_; ++h) {
        int64_t& begin = begins[static_cast<size_t>(layer * kv_heads_ + h)];
        begin = std::max(caches[static_cast<size_t>(layer)].begin(h), needed_from(layer, h, log_share));
        keys += static_cast<double>(position - begin);
      }
    }
    return keys;
  };
  // Bisection between `all`, at which the flattest head keeps every key, and `none`, at which every head keeps the
  // fewest.
  double all = options_.tolerance ? std::log(*options_.tolerance) : -no_limit, none = 1e9;
  if (!(keys_at(all) > max_keys)) return begins;
  all = std::max(all, -1e9);
  for (int i = 0; i < 60; ++i) {
    const double between = (all + none) / 2;
    (keys_at(between) > max_keys ? all : none) = between;
  }
  keys_at(none);
  return begins;
}

void Eviction::make_room(std::span<KvCache> caches, int64_t tokens) {
  const int64_t position = caches.front().length();
  const bool lacks = std::any_of(caches.begin(), caches.end(),
                                 [&](const KvCache& cache) { return cache.capacity() < position + tokens; });
  if (!lacks) return;
  // Room for the tokens that may be read together, but at most half the number of tokens read, so that short texts need
  // little memory.
  const auto room_beside = [&](double kept) {
    const auto half = std::min(static_cast<int64_t>(kept / 2), max_tokens_);
    return core::ceil_div(position + std::max(tokens, half), cache_block) * cache_block - position;
  };
  const auto all_heads = static_cast<double>(layers_ * kv_heads_);
  const int64_t max_room = room_beside(static_cast<double>(position));
  const std::vector<int64_t> begins = plan(caches, max_keys_ - static_cast<double>(max_room) * all_heads);
  double kept = 0;
  for (const int64_t begin : begins) kept += static_cast<double>(position - begin) / all_heads;
  const int64_t room = options_.memory ? max_room : room_beside(kept);
  for (size_t layer = 0; layer < caches.size(); ++layer) {
    const auto of_layer =
        std::span(begins).subspan(layer * static_cast<size_t>(kv_heads_), static_cast<size_t>(kv_heads_));
    for (int64_t h = 0; h < kv_heads_; ++h) {
      const int64_t evicted = of_layer[static_cast<size_t>(h)] - caches[layer].begin(h);
      if (evicted == 0) continue;
      evicted_at_ = position;
      certificate_.keys += evicted;
    }
    caches[layer].evict(of_layer, room);
  }
}

void Eviction::attended(int layer, const Tensor& q, const KvCache& cache, const AttentionOptions& options,
                        const Tensor& lse) {
  const kernels::EvictedShares shares = kernels::evicted_shares(q, cache, options, lse, unsettled);
  biases_[static_cast<size_t>(layer)] = shares.biases;
  attention_[static_cast<size_t>(layer)] = options;
  attention_[static_cast<size_t>(layer)].query_offset.reset();
  for (int64_t head = 0; head < heads_; ++head) {
    const auto at = static_cast<size_t>(layer * heads_ + head);
    leads_[at] = std::max(leads_[at], shares.lead[static_cast<size_t>(head)]);
    norms_[at] = std::max(norms_[at], shares.norm[static_cast<size_t>(head)]);
  }
  certificate_.score_error = std::max(certificate_.score_error, score_error(q, cache, options));
  if (!(shares.worst > certificate_.worst)) return;
  const int64_t position = cache.length() - q.size(1) + shares.query;
  check(!options_.exact || shares.worst <= tolerance_,
        "[context] at token {}, the keys that layer {} and head {} evicted could have {:.2g} of the attention "
        "weight, more than the tolerance {:.2g}; allow more memory, set a larger tolerance, or continue without exact",
        position, layer, shares.head, shares.worst, tolerance_);
  certificate_.worst = shares.worst;
  certificate_.position = position;
  certificate_.layer = layer;
  certificate_.head = static_cast<int>(shares.head);
}

}  // namespace alibi::kernels
