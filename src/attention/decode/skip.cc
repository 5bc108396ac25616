#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>
#include <optional>
#include <vector>

#include "attention/decode/decode.h"
#include "attention/skip/norms.h"
#include "attention/skip/weights.h"
#include "core/parallel.h"

namespace alibi::kernels {
namespace {

/// Maximum number of nodes that are examined for a row. The tree usually needs fanout times its height. If adversarial
/// norms need more, more keys are visited.
constexpr int max_nodes = 256;

}  // namespace

DecodeSkip::Scores::Scores(const float* q, const float* centre, int64_t stride, ScoreScale scale)
    : per_norm(std::abs(static_cast<double>(scale.scale)) * std::numbers::log2e * norm_of(q, stride)), of_centre(0) {
  for (int64_t i = 0; i < stride; ++i) of_centre += static_cast<double>(q[i]) * static_cast<double>(centre[i]);
  of_centre *= static_cast<double>(scale.scale) * std::numbers::log2e;
}

DecodeSkip::DecodeSkip(const core::StateOf<KvCache>& cache, int64_t head, const Scores& scores, ScoreScale scale,
                       const HeadBias& bias, int64_t position, double max, double budget)
    : norms_(cache.norms),
      radii_(cache.radii),
      head_(head),
      row_{.norm = scores.per_norm, .product = scores.of_centre, .share = 0, .top = max},
      bias_(bias),
      position_(position),
      budget_(budget) {
  for (const Side side : {Side::before, Side::after}) {
    const double in_block = bias->slides() ? bias->fall(side, cache_block) : static_cast<double>(bias->magnitude());
    Roundings& roundings = roundings_[static_cast<size_t>(side)] =
        Roundings::of_decoding(scale, cache.stride, in_block);
    if (bias_.decay) roundings.fixed += 0x1p-16;  // gates in float32, of keys that have some weight
  }
}

bool DecodeSkip::spend(float norm, float radius, Side side, int64_t distance, int64_t keys) {
  const Roundings& roundings = roundings_[static_cast<size_t>(side)];
  // The gates weaken all of these keys at least as much as the nearest one.
  const double gates =
      bias_.decay && side == Side::before ? gates_in_log2(bias_.decay, position_ - distance, position_) : 0;
  const double weight =
      std::exp2(log2_weight_of_key(row_, norm, radius, *bias_.form, side, distance, roundings) - gates) *
      weight_of_keys(bias_->fall(side, 1), keys);
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
  for (int asked = 0; !keys.empty() && asked < max_nodes; ++asked) {
    const int64_t span = NormTree::span(level);
    const int64_t node = (before ? far : far - 1) / span;
    const Range covered = {std::max(keys.begin, node * span), std::min(keys.end, (node + 1) * span)};
    const int64_t distance = before ? position_ - (covered.end - 1) : covered.begin - position_;
    if (spend(norms_.at(head_, level, node), radii_.at(head_, level, node), before ? Side::before : Side::after,
              distance, covered.size())) {
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

int64_t first_needed_key(const Problem& problem, const core::StateOf<KvCache>& cache) {
  constexpr int64_t min_keys = 8192, queries_together = 64;
  if (problem.tolerance == 0 || problem.keys - problem.queries < min_keys) return 0;
  for (const Sequence& sequence : problem.sequences) {
    for (int64_t head = 0; head < problem.heads; ++head) {
      const Bias& bias = problem.biases->of(sequence.number, head);
      if (problem.decays == nullptr && !bias.falls(Side::before, problem.tolerance)) return 0;
    }
  }
  const ScoreScale scale = problem.score_scale();
  const int64_t blocks = core::ceil_div(problem.queries, queries_together);
  std::vector<int64_t> begins(static_cast<size_t>(problem.batch * problem.heads * blocks), 0);
  const auto search = [&](int64_t task) -> int64_t {
    const int64_t b = task / (problem.heads * blocks), h = task / blocks % problem.heads;
    const int64_t kv_head = h / problem.group(), head = b * problem.kv_heads + kv_head;
    const int64_t first = task % blocks * queries_together;
    const int64_t count = std::min(queries_together, problem.queries - first);
    const Sequence& sequence = problem.sequences[static_cast<size_t>(b)];
    const int64_t position = sequence.query_offset + first;
    if (position < 0 || position + count > problem.keys) return 0;
    // A row's sum is at least the weight of the key at its own position.
    const HeadBias bias = problem.bias(sequence, h);
    double max = std::numeric_limits<double>::infinity();
    std::optional<DecodeSkip::Scores> largest;
    std::vector<float> q(static_cast<size_t>(cache.stride));
    for (int64_t i = 0; i < count; ++i) {
      const int64_t row = problem.q.offset(b, first + i, h);
      const void* const key = cache.key_rows(b, kv_head, position + i);
      double own = 0;
      for (int64_t d = 0; d < problem.head_dim; ++d) {
        q[static_cast<size_t>(d)] = load_value(problem.dtype, problem.q.data, row + d);
        own += static_cast<double>(q[static_cast<size_t>(d)]) * static_cast<double>(load_value(cache.dtype, key, d));
      }
      own = (scale.capped(own * static_cast<double>(scale.scale)) + bias->precise_at(0)) * std::numbers::log2e;
      if (!std::isfinite(own)) return 0;
      max = std::min(max, own);
      const DecodeSkip::Scores scores(q.data(), cache.centre(head), cache.stride, scale);
      if (!largest) largest = scores;
      largest->per_norm = std::max(largest->per_norm, scores.per_norm);
      largest->of_centre = std::max(largest->of_centre, scores.of_centre);
    }
    const int64_t begin = Problem::keys_seen(bias, position, position + count - 1, problem.keys).begin;
    const int64_t end = std::max(begin, position / cache_block * cache_block);
    const auto budget = static_cast<double>(skip_budget(problem)) / 2;
    return DecodeSkip(cache, head, *largest, scale, bias, position, max, budget).first_needed(begin, end);
  };
  core::parallel_ranges(std::ssize(begins), 4, [&](int64_t begin, int64_t end) {
    for (int64_t task = begin; task < end; ++task) begins[static_cast<size_t>(task)] = search(task);
  });
  return *std::min_element(begins.begin(), begins.end()) / cache_block * cache_block;
}

}  // namespace alibi::kernels
