#include <algorithm>
#include <cmath>
#include <numbers>

#include "attention/decode/decode.h"

namespace alibi::kernels {
namespace {

/// Nodes asked per row at most. A walk down the tree needs fanout times its height; norms made to defeat it only make
/// more keys visited.
constexpr int most_nodes = 256;

double norm_of(const float* row, int64_t size) {
  double sum = 0;
  for (int64_t i = 0; i < size; ++i) sum += static_cast<double>(row[i]) * static_cast<double>(row[i]);
  return std::sqrt(sum);
}

}  // namespace

DecodeSkip::DecodeSkip(const NormTree& norms, int64_t head, float scale, const DecodeRow& row, int64_t stride,
                       double max, double budget)
    : norms_(norms),
      head_(head),
      position_(row.position),
      slope_before_(static_cast<double>(row.bias.slope_before) * std::numbers::log2e),
      slope_after_(static_cast<double>(row.bias.slope_after) * std::numbers::log2e),
      max_(max),
      budget_(budget) {
  // The computed dot product may exceed the exact one by as many roundings.
  const double rounding = 1 + static_cast<double>(stride + 2) * 0x1p-23;
  const double magnitude = std::abs(static_cast<double>(scale)) * std::numbers::log2e;
  reach_ = magnitude * norm_of(row.q, stride) * rounding;
}

double DecodeSkip::bound(float norm, double slope, int64_t distance, int64_t keys) const {
  const double nearest = reach_ * static_cast<double>(norm) - slope * static_cast<double>(distance) - max_;
  const double count = static_cast<double>(keys);
  // (1 - 2^(-m n)) / (1 - 2^-m), n where m = 0
  const double series =
      slope > 0 ? std::expm1(-slope * count * std::numbers::ln2) / std::expm1(-slope * std::numbers::ln2) : count;
  return std::exp2(nearest) * std::min(series, count);
}

bool DecodeSkip::spend(double weight) {
  if (!(weight <= budget_)) return false;  // NaN is visited
  budget_ -= weight;
  return true;
}

int64_t DecodeSkip::first_needed(int64_t begin, int64_t end) {
  // From the oldest keys on, a node at a time: into a node that does not fit, out of one that does.
  int level = norms_.levels() - 1;
  for (int asked = 0; begin < end && asked < most_nodes; ++asked) {
    const int64_t span = NormTree::span(level);
    const int64_t node = begin / span;
    const int64_t node_end = std::min(end, (node + 1) * span);
    const int64_t distance = position_ - (node_end - 1);
    if (spend(bound(norms_.at(head_, level, node), slope_before_, distance, node_end - begin))) {
      begin = node_end;
      while (level + 1 < norms_.levels() && begin % NormTree::span(level + 1) == 0) ++level;
    } else if (level > 0) {
      --level;
    } else {
      break;
    }
  }
  return begin;
}

int64_t DecodeSkip::end_needed(int64_t begin, int64_t end) {
  int level = norms_.levels() - 1;
  for (int asked = 0; begin < end && asked < most_nodes; ++asked) {
    const int64_t span = NormTree::span(level);
    const int64_t node = (end - 1) / span;
    const int64_t node_begin = std::max(begin, node * span);
    const int64_t distance = node_begin - position_;
    if (spend(bound(norms_.at(head_, level, node), slope_after_, distance, end - node_begin))) {
      end = node_begin;
      while (level + 1 < norms_.levels() && end % NormTree::span(level + 1) == 0) ++level;
    } else if (level > 0) {
      --level;
    } else {
      break;
    }
  }
  return end;
}

}  // namespace alibi::kernels
