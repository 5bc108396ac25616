#include "attention/skip/weights.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "attention/workspace.h"
#include "core/parallel.h"

namespace alibi::kernels {
namespace {

/// The values of x for which bounds are stored, in units of a typical query's x. Most queries are within a factor of
/// two of it.
constexpr WeightBounds::Values levels_of_typical = {0, 0.5f, 0.7f, 0.85f, 1, 1.2f, 1.5f, 2.2f};
/// Represents the logarithm of 0.
constexpr double nothing = -1e30;

/// An upper bound of log2(2^a + 2^b).
double log2_sum(double a, double b) {
  if (!(a < HUGE_VAL && b < HUGE_VAL)) return HUGE_VAL;  // also true for NaN
  const double high = std::max(a, b), low = std::min(a, b);
  constexpr double rounding = 0x1p-22;  // error of the float32 functions
  const auto less = static_cast<float>(std::max(low - high, -100.0));
  return high + static_cast<double>(std::log2(1 + std::exp2(less))) + rounding;
}

}  // namespace

WeightSum::WeightSum() { sums_.fill(nothing); }

void WeightSum::add(const WeightBounds::Values& block, double fall) {
  for (size_t e = 0; e < sums_.size(); ++e) {
    sums_[e] = log2_sum(std::max(sums_[e] - fall, nothing), static_cast<double>(block[e]));
  }
}

WeightBounds::Values WeightSum::values() const {
  WeightBounds::Values values;
  for (size_t e = 0; e < values.size(); ++e) values[e] = above(sums_[e]);
  return values;
}

Sample::Sample(int64_t rows) : count(std::clamp<int64_t>(rows / 32, std::min<int64_t>(rows, 8), centre_rows)) {
  step = count > 0 ? rows / count : 1;
}

WeightBounds::WeightBounds(const Problem& problem, int64_t block_rows, const LoadSample& load)
    : problem_(problem),
      block_rows_(block_rows),
      size_(round_up(problem.head_dim, 16)),
      radii_(problem, block_rows),
      norms_(problem, block_rows) {
  const size_t sequences = problem.sequences.size();
  centres_.resize(sequences * static_cast<size_t>(problem.kv_heads * size_));
  centre_norms_.resize(sequences * static_cast<size_t>(problem.kv_heads));
  lengths_.resize(sequences * static_cast<size_t>(problem.heads));
  size_t entries = 0;
  for (size_t s = 0; s < sequences; ++s) {
    base_.push_back(entries);
    entries += static_cast<size_t>(problem.heads * (blocks().blocks(s) + 1));
  }
  before_.resize(entries);
  if (!problem.causal) from_.resize(entries);
  core::parallel_ranges(static_cast<int64_t>(sequences) * problem.kv_heads, 4, [&](int64_t begin, int64_t end) {
    const FlushDenormals flush;
    Workspace workspace = Workspace::take(static_cast<size_t>(centre_rows * size_));
    float* const rows = workspace.part(centre_rows * size_);
    for (int64_t i = begin; i < end; ++i) {
      const auto s = static_cast<size_t>(i / problem.kv_heads);
      const int64_t kv_head = i % problem.kv_heads;
      const Sequence& sequence = problem.sequences[s];
      const Sample keys(sequence.keys), queries(sequence.queries);
      const auto sample_of = [&](BlockIndex::Of of, const Sample& sample, int64_t head) {
        if (load) return load(s, of, sample, head, rows);
        load_rows(problem, sequence, of, sample.step, sample.count, head, rows, size_);
      };
      sample_of(BlockIndex::Of::keys, keys, kv_head);
      const size_t centre_at = number(s, kv_head, problem.kv_heads);
      float* const centre = &centres_[centre_at * static_cast<size_t>(size_)];
      make_centre(rows, keys.count, size_, centre);
      double squares = 0;
      for (int64_t d = 0; d < size_; ++d) squares += static_cast<double>(centre[d]) * static_cast<double>(centre[d]);
      centre_norms_[centre_at] = above(std::sqrt(squares));
      for (int64_t head = kv_head * problem.group(); head < (kv_head + 1) * problem.group(); ++head) {
        sample_of(BlockIndex::Of::queries, queries, head);
        const float typical =
            std::abs(problem.scale) * std::numbers::log2e_v<float> * median_norm(rows, queries.count, size_);
        lengths_[number(s, head, problem.heads)] =
            typical < 1e30f ? typical : 0;  // larger values overflow when multiplied by a norm
      }
    }
  });
}

void WeightBounds::accumulate() {
  radii_.accumulate();
  norms_.accumulate();
  if (!problem_.coordinates.empty()) return;
  const auto sequences = static_cast<int64_t>(problem_.sequences.size());
  core::parallel_ranges(sequences * problem_.heads, 4, [&](int64_t begin, int64_t end) {
    const FlushDenormals flush;
    for (int64_t i = begin; i < end; ++i) {
      const auto s = static_cast<size_t>(i / problem_.heads);
      const int64_t head = i % problem_.heads, count = blocks().blocks(s);
      const HeadBias bias = problem_.bias(problem_.sequences[s], head);
      const auto add = [&](Values& values, WeightSum& sum, Side side, double gates = 0) {
        sum.add(values, fall_in_log2(*bias.form, side) * static_cast<double>(block_rows_) + gates);
        values = sum.values();
      };
      WeightSum sum_before, sum_from;
      Values* const before = &before_[at(s, head, 0)];
      before[0].fill(static_cast<float>(nothing));
      for (int64_t block = 0; block < count; ++block) {
        add(before[block + 1], sum_before, Side::before,
            bias.decay ? gates_in_log2(bias.decay, block * block_rows_ - 1, (block + 1) * block_rows_ - 1) : 0);
      }
      if (problem_.causal) continue;
      Values* const from = &from_[at(s, head, 0)];
      from[count].fill(static_cast<float>(nothing));
      for (int64_t block = count; block-- > 0;) add(from[block], sum_from, Side::after);
    }
  });
}

WeightBounds::Head WeightBounds::head(size_t sequence, int64_t head) const {
  const int64_t kv_head = head / problem_.group();
  Head result;
  result.centre = &centres_[number(sequence, kv_head, problem_.kv_heads) * static_cast<size_t>(size_)];
  result.centre_norm = centre_norms_[number(sequence, kv_head, problem_.kv_heads)];
  const float typical = lengths_[number(sequence, head, problem_.heads)];
  for (size_t e = 0; e < levels; ++e) result.x[e] = typical * levels_of_typical[e];
  result.before = &before_[at(sequence, head, 0)];
  if (!problem_.causal) result.from = &from_[at(sequence, head, 0)];
  result.radius_before = radii_.before(sequence, kv_head);
  result.radius_from = radii_.from(sequence, kv_head);
  result.norm_before = norms_.before(sequence, kv_head);
  result.norm_from = norms_.from(sequence, kv_head);
  return result;
}

Levels WeightBounds::Head::levels_of(float least, float most) const {
  Levels at;
  constexpr int top = levels - 1;
  while (at.low < top && x[static_cast<size_t>(at.low + 1)] <= least) ++at.low;
  at.high = at.low;
  while (at.high < top && x[static_cast<size_t>(at.high)] < most) ++at.high;
  at.from = x[static_cast<size_t>(at.low)];
  const float to = x[static_cast<size_t>(at.high)];
  at.beyond = to >= most ? 0 : most - to;  // NaN remains NaN, so nothing is skipped
  at.width = at.beyond == 0 ? to - at.from : most - at.from;
  return at;
}

}  // namespace alibi::kernels
