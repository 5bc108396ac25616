#include "attention/amx/plan.h"

#include <algorithm>
#include <limits>
#include <numbers>

#include "attention/amx/pack.h"
#include "attention/amx/tiles.h"
#include "attention/workspace.h"
#include "core/memory.h"
#include "core/parallel.h"

namespace alibi::kernels::amx {
namespace {

/// Returns 0 for a closed direction, in which no key is seen.
float log2_slope(float slope) {
  return slope == std::numeric_limits<float>::infinity() ? 0.0f : slope * std::numbers::log2e_v<float>;
}

}  // namespace

HeadPlan::HeadPlan(const Problem& problem, size_t sequence_index, int64_t head_index)
    : sequence(sequence_index), head(head_index) {
  const Sequence& s = problem.sequences[sequence];
  bias = problem.bias(s, head);
  factor = problem.scale * std::numbers::log2e_v<float>;
  before = log2_slope(bias.slope_before);
  after = log2_slope(bias.slope_after);
  if (bias.table != nullptr) {
    largest_bias = problem.biases->largest[static_cast<size_t>(head)] * std::numbers::log2e_v<float>;
  }
  keys = s.keys;
}

Range HeadPlan::blocks_seen(int64_t first, int64_t last) const {
  return blocks_of(Problem::keys_seen(bias, first, last, keys), block_rows);
}

PackedKeys::PackedKeys(const Problem& problem)
    : block_size_(steps_of(problem.head_dim) * block_rows * block_rows),
      kv_heads_(problem.kv_heads),
      norms_(problem, block_rows) {
  const BlockIndex& index = norms_.blocks();
  const int64_t blocks = index.size();
  memory_ = core::allocate(static_cast<size_t>(2 * blocks * block_size_) * sizeof(uint16_t), false);
  rows_ = static_cast<uint16_t*>(memory_.get());
  transposed_ = rows_ + blocks * block_size_;
  if (skip_rule_applies(problem)) bounds_.emplace(problem, block_rows);
  std::vector<float> values(static_cast<size_t>(blocks));
  const auto sequences = static_cast<int64_t>(problem.sequences.size());
  for (int64_t s = 0; s < sequences; ++s) {
    const auto at_sequence = static_cast<size_t>(s);
    const Sequence& sequence = problem.sequences[at_sequence];
    const int64_t count = index.blocks(at_sequence);
    core::parallel_ranges(kv_heads_ * count, 16, [&](int64_t begin, int64_t end) {
      const FlushDenormals flush;
      for (int64_t i = begin; i < end; ++i) {
        const int64_t head = i % kv_heads_,
                      row = i / kv_heads_ * block_rows;  // the heads of a row are adjacent in memory
        const int64_t at = index.at(at_sequence, head, row / block_rows);
        const auto source = [&](const TensorView& tensor) {
          const KeyRow place = problem.key_row(sequence, row);
          return source_at(tensor, place.batch, place.row, head, sequence.keys - row, problem.head_dim);
        };
        alignas(64) float row_norm[block_rows];
        pack_rows(source(problem.k), rows_ + at * block_size_);
        uint16_t* tiles = transposed_ + index.at(at_sequence, head, 0) * block_size_ + row * block_rows;
        pack_transposed(source(problem.v), tiles, count * block_rows * block_rows);
        norms_.set(at_sequence, head, row / block_rows, row_norms(source(problem.k), row_norm));
        values[static_cast<size_t>(at)] = largest(source(problem.v));
        if (bounds_) measure_keys(problem, at_sequence, head, row / block_rows, *bounds_);
      }
    });
  }
  for (const float value : values) largest_value_ = std::max(largest_value_, value);
  norms_.accumulate();
  if (bounds_) bounds_->accumulate();
  constexpr float most = std::numeric_limits<float>::max();
  finite_ = largest_value_ <= most;
  for (size_t sequence = 0; sequence < problem.sequences.size(); ++sequence) {
    for (int64_t head = 0; head < kv_heads_; ++head) finite_ = finite_ && norms_.from(sequence, head)[0] <= most;
  }
}

KeyView PackedKeys::view(size_t sequence, int64_t kv_head) const {
  const int64_t at = norms_.blocks().at(sequence, kv_head, 0) * block_size_;
  return {.rows = rows_ + at, .transposed = transposed_ + at, .longest = norms_.from(sequence, kv_head)[0]};
}

}  // namespace alibi::kernels::amx
