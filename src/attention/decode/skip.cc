#include "attention/skip.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "attention/decode/decode.h"

namespace alibi::kernels {
namespace {

/// Maximum number of nodes that are examined for a row. The tree usually needs fanout times its height. If adversarial
/// norms need more, more keys are visited.
constexpr int most_nodes = 256;

}  // namespace

DecodeSkip::DecodeSkip(const core::StateOf<KvCache>& cache, int64_t head, const float* centre, ScoreScale scale,
                       const DecodeRow& row, double max, double budget)
    : norms_(cache.norms), radii_(cache.radii), head_(head), row_(row), max_(max), budget_(budget), scale_(scale) {
  const int64_t stride = cache.stride;
  // The computed dot product may exceed the exact one by one rounding per element. Denormals count as zero in it.
  rounding_ = static_cast<double>(stride + 2) * 0x1p-23 + 0x1p-20 + (scale.softcap > 0 ? 0x1p-20 : 0.0);
  const double magnitude = std::abs(static_cast<double>(scale.scale)) * std::numbers::log2e;
  score_per_norm_ = magnitude * norm_of(row.q, stride);
  for (int64_t i = 0; i < stride; ++i) centre_ += static_cast<double>(row.q[i]) * static_cast<double>(centre[i]);
  centre_ *= static_cast<double>(scale.scale) * std::numbers::log2e;
  flushed_ = magnitude * static_cast<double>(stride) * 0x1p-125;
}

bool DecodeSkip::spend(float norm, float radius, float slope, int64_t distance, int64_t keys) {
  const auto m = static_cast<double>(slope);
  // Biases within a block of keys are rounded like the scores that they are added to.
  const double bias_rounding = 0x1p-20 * m * static_cast<double>(cache_block);
  const double penalty = m * std::numbers::log2e * static_cast<double>(distance);
  const double score = score_per_norm_ * static_cast<double>(norm);
  const double less =
      std::min(score, centre_ + score_per_norm_ * static_cast<double>(radius));  // picks the score if the other is NaN
  // A bound that is not finite stays so: a key that is infinite or NaN is not dropped.
  const double capped = std::isfinite(less) ? scale_.capped(less / std::numbers::log2e) * std::numbers::log2e : less;
  const double nearest = capped + score * rounding_ + flushed_ + bias_rounding - penalty - max_;
  const double weight = std::exp2(nearest) * weight_of_keys(m, keys);
  if (!(weight <= budget_)) return false;  // a NaN is not dropped
  budget_ -= weight;
  return true;
}

template <bool before>
Range DecodeSkip::needed(Range keys) {
  // Starts with the largest nodes of the tree. A node whose keys fit the budget is dropped. If it was the last child of
  // its parent, the next node has the parent's size. If a node does not fit, its children are examined. The first leaf
  // that does not fit ends the loop.
  int64_t& far = before ? keys.begin : keys.end;
  int level = norms_.levels() - 1;
  for (int asked = 0; !keys.empty() && asked < most_nodes; ++asked) {
    const int64_t span = NormTree::span(level);
    const int64_t node = (before ? far : far - 1) / span;
    const Range covered = {std::max(keys.begin, node * span), std::min(keys.end, (node + 1) * span)};
    const int64_t distance = before ? row_.position - (covered.end - 1) : covered.begin - row_.position;
    const float slope = before ? row_.bias.slope_before : row_.bias.slope_after;
    if (spend(norms_.at(head_, level, node), radii_.at(head_, level, node), slope, distance, covered.size())) {
      far = before ? covered.end : covered.begin;
      while (level + 1 < norms_.levels() && far % NormTree::span(level + 1) == 0) ++level;
    } else if (level > 0) {
      --level;
    } else {
      break;
    }
  }
  return keys;
}

int64_t DecodeSkip::first_needed(int64_t begin, int64_t end) { return needed<true>({begin, end}).begin; }
int64_t DecodeSkip::end_needed(int64_t begin, int64_t end) { return needed<false>({begin, end}).end; }

}  // namespace alibi::kernels
