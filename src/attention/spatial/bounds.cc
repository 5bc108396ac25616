// The skip rule for given positions. The derivation is in docs/explanation/positions.md.
#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

#include "attention/skip/norms.h"
#include "attention/spatial/spatial.h"
#include "attention/workspace.h"
#include "core/parallel.h"
#include "core/pieces.h"

namespace alibi::kernels {
namespace {

/// As for counted distances (skip_weights.cc), in units of a typical query's x.
constexpr SpatialBounds::Values levels_of_typical_query = {0, 0.5f, 0.7f, 0.85f, 1, 1.2f, 1.5f, 2.2f};

/// A float that is at least x and exceeds it by at most one rounding.
float float_above(double x) { return static_cast<float>(x + 0x1p-22 * std::abs(x)); }

/// Up to centre_rows rows, evenly spread.
struct SampleOf {
  explicit SampleOf(int64_t rows) : count(std::clamp<int64_t>(rows / 32, std::min<int64_t>(rows, 8), centre_rows)) {
    step = count > 0 ? rows / count : 1;
  }
  int64_t count, step = 1;
};

}  // namespace

double SpatialProblem::slope(size_t sequence, int64_t head, int64_t query_block) const {
  if (sequences[sequence].queries->is_leading(query_block)) return 0;
  return fall_in_log2(*base.bias(base.sequences[sequence], head).form, Side::before);
}

PenaltyStep penalty_step(double penalty) {
  constexpr double fine = 128;       // penalties below it have steps of 1/4
  constexpr double per_octave = 32;  // steps above it
  constexpr int fine_steps = 512;
  if (penalty < fine) return static_cast<PenaltyStep>(4 * penalty);
  const double step = fine_steps + per_octave * std::log2(penalty / fine);
  return static_cast<PenaltyStep>(std::min(step, static_cast<double>(penalty_steps - 1)));
}

void measure_penalties(const TokenOrder& keys, const Box* box, Distance distance, double slope, PenaltyStep* steps,
                       double* penalties) {
  for (int64_t block = 0; block < keys.size(); ++block) {
    const bool apart = box != nullptr && slope > 0 && !keys.is_leading(block);
    const double penalty =
        apart ? slope * least_distance(*box, keys.blocks[static_cast<size_t>(block)].box, keys.dims, distance) : 0;
    steps[block] = penalty_step(penalty);
    if (penalties != nullptr) penalties[block] = penalty;
  }
}

void RemainingWeights::measure(const SpatialBounds::Head& keys, const Levels& at, const std::vector<PenaltyStep>& steps,
                               const std::vector<double>& penalties) {
  const std::array<size_t, 2> levels = {static_cast<size_t>(at.low), static_cast<size_t>(at.high)};
  top_ = {keys.top[levels[0]], keys.top[levels[1]]};
  beyond_ = at.beyond == 0 ? 0 : static_cast<double>(at.beyond) * static_cast<double>(keys.radius);
  // Covers sums that are flushed to zero: no key block adds less.
  const double least = static_cast<double>(steps.size()) * std::numeric_limits<double>::min();
  sums_.assign(penalty_steps, {0, 0});
  for (size_t block = 0; block < steps.size(); ++block) {
    for (size_t e = 0; e < 2; ++e) {
      sums_[steps[block]][e] +=
          std::exp2(static_cast<double>(keys.logs[block][levels[e]]) - penalties[block] - top_[e]);
    }
  }
  std::array<double, 2> sum = {least, least};
  for (size_t step = penalty_steps; step-- > 0;) {
    for (size_t e = 0; e < 2; ++e) sums_[step][e] = sum[e] += sums_[step][e];
  }
}

Chord RemainingWeights::from(PenaltyStep step) const {
  const auto log = [&](size_t e) { return std::log2(sums_[step][e]) + top_[e] + 0x1p-30; };
  const float low = float_above(log(0));
  return {.low = low, .rise = float_above(log(1) + beyond_ - static_cast<double>(low))};
}

SpatialBounds::SpatialBounds(const SpatialProblem& problem)
    : problem_(problem), size_(round_up(problem.base.head_dim, 16)) {
  const Problem& base = problem.base;
  const size_t sequences = base.sequences.size();
  const auto kv_heads = static_cast<size_t>(base.kv_heads), heads = static_cast<size_t>(base.heads);
  centres_.resize(sequences * kv_heads * static_cast<size_t>(size_));
  centre_norms_.resize(sequences * kv_heads);
  lengths_.resize(sequences * heads);
  top_.resize(sequences * heads);
  radius_.resize(sequences * kv_heads);
  norm_.resize(sequences * kv_heads);
  core::Pieces key_blocks(1);
  size_t logs = 0, radii = 0;
  for (const SpatialSequence& sequence : problem.sequences) {
    const int64_t blocks = sequence.keys->size();
    key_blocks.add(blocks);
    first_.push_back(logs);
    first_of_keys_.push_back(radii);
    logs += static_cast<size_t>(base.heads * blocks);
    radii += static_cast<size_t>(base.kv_heads * blocks);
  }
  logs_.resize(logs);
  radii_.resize(radii);
  norms_.resize(radii);
  const auto all_kv_heads = static_cast<int64_t>(sequences) * base.kv_heads;
  core::parallel_for(all_kv_heads,
                     [&](int64_t i) { measure_samples(static_cast<size_t>(i / base.kv_heads), i % base.kv_heads); });
  core::parallel_for(key_blocks.size(), [&](int64_t task) {
    const core::Piece block = key_blocks.at(task);
    const int64_t blocks = problem.sequences[block.array].keys->size();
    std::vector<WeightBounds::Head> group(static_cast<size_t>(base.group()));
    for (int64_t kv_head = 0; kv_head < base.kv_heads; ++kv_head) {
      const int64_t head = kv_head * base.group();
      for (int64_t g = 0; g < base.group(); ++g) {
        group[static_cast<size_t>(g)] = this->head(block.array, head + g).of_queries;
      }
      const size_t at = first_of_keys_[block.array] + static_cast<size_t>(kv_head * blocks + block.begin);
      Values* const values = &logs_[first_[block.array] + static_cast<size_t>(head * blocks + block.begin)];
      spatial_measure_keys(problem, block.array, kv_head, block.begin, group.data(), values, blocks, &radii_[at],
                           &norms_[at]);
    }
  });
  core::parallel_for(static_cast<int64_t>(sequences) * base.heads,
                     [&](int64_t i) { measure_tops(static_cast<size_t>(i / base.heads), i % base.heads); });
}

void SpatialBounds::measure_samples(size_t s, int64_t kv_head) {
  const FlushDenormals flush;
  const Problem& base = problem_.base;
  const Sequence& sequence = base.sequences[s];
  Workspace workspace = Workspace::take(static_cast<size_t>(centre_rows * size_));
  float* const rows = workspace.part(centre_rows * size_);
  const SampleOf keys(sequence.keys), queries(sequence.queries);
  load_rows(base, sequence, BlockIndex::Of::keys, keys.step, keys.count, kv_head, rows, size_);
  float* const centre = &centres_[kv_index(s, kv_head) * static_cast<size_t>(size_)];
  make_centre(rows, keys.count, size_, centre);
  double squares = 0;
  for (int64_t d = 0; d < size_; ++d) squares += static_cast<double>(centre[d]) * static_cast<double>(centre[d]);
  centre_norms_[kv_index(s, kv_head)] = float_above(std::sqrt(squares));
  for (int64_t head = kv_head * base.group(); head < (kv_head + 1) * base.group(); ++head) {
    load_rows(base, sequence, BlockIndex::Of::queries, queries.step, queries.count, head, rows, size_);
    const float typical = std::abs(base.scale) * std::numbers::log2e_v<float> * median_norm(rows, queries.count, size_);
    lengths_[head_index(s, head)] = typical < 1e30f ? typical : 0;  // larger values overflow when multiplied by a norm
  }
}

void SpatialBounds::measure_tops(size_t s, int64_t head) {
  const auto blocks = static_cast<size_t>(problem_.sequences[s].keys->size());
  const int64_t kv_head = head / problem_.base.group();
  const Values* const logs = logs_.data() + first_[s] + static_cast<size_t>(head) * blocks;
  std::array<double, levels>& top = top_[head_index(s, head)];
  top.fill(-HUGE_VAL);
  // `!(x <= top)` keeps NaN, so that nothing is skipped.
  for (size_t block = 0; block < blocks; ++block) {
    for (size_t e = 0; e < levels; ++e) {
      if (!(static_cast<double>(logs[block][e]) <= top[e])) top[e] = static_cast<double>(logs[block][e]);
    }
  }
  if (head % problem_.base.group() != 0) return;
  const size_t at = first_of_keys_[s] + static_cast<size_t>(kv_head) * blocks;
  float radius = 0, norm = 0;
  for (size_t block = 0; block < blocks; ++block) {
    radius = std::max(radius, radii_[at + block]);  // both are infinite for keys that are not finite
    norm = std::max(norm, norms_[at + block]);
  }
  radius_[kv_index(s, kv_head)] = radius;
  norm_[kv_index(s, kv_head)] = norm;
}

SpatialBounds::Head SpatialBounds::head(size_t sequence, int64_t head) const {
  const int64_t kv_head = head / problem_.base.group();
  const size_t at = kv_index(sequence, kv_head);
  Head result;
  result.of_queries.centre = &centres_[at * static_cast<size_t>(size_)];
  result.of_queries.centre_norm = centre_norms_[at];
  const float typical = lengths_[head_index(sequence, head)];
  for (size_t e = 0; e < levels; ++e) result.of_queries.x[e] = typical * levels_of_typical_query[e];
  const auto blocks = static_cast<size_t>(problem_.sequences[sequence].keys->size());
  result.logs = logs_.data() + first_[sequence] + static_cast<size_t>(head) * blocks;
  result.top = top_[head_index(sequence, head)];
  result.radius = radius_[at];
  result.norm = norm_[at];
  return result;
}

}  // namespace alibi::kernels
