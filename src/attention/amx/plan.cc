#if defined(__x86_64__)
#include "attention/amx/plan.h"

#include <algorithm>
#include <limits>
#include <numbers>

#include "attention/amx/pack.h"
#include "attention/amx/tiles.h"
#include "core/memory.h"
#include "core/parallel.h"

namespace alibi::kernels::amx {
namespace {

/// A closed direction has no slope: nothing is seen there.
float log2_slope(float slope) {
  return slope == std::numeric_limits<float>::infinity() ? 0.0f : slope * std::numbers::log2e_v<float>;
}

}  // namespace

HeadPlan::HeadPlan(const Problem& problem, size_t sequence_index, int64_t head_index)
    : sequence(sequence_index), head(head_index) {
  const Sequence& s = problem.sequences[sequence];
  bias = problem.bias(s.batch, head);
  factor = problem.scale * std::numbers::log2e_v<float>;
  before = log2_slope(bias.slope_before);
  after = log2_slope(bias.slope_after);
  if (bias.table != nullptr) {
    largest_bias = problem.largest_bias[static_cast<size_t>(head)] * std::numbers::log2e_v<float>;
  }
  keys = s.keys;
}

std::pair<int64_t, int64_t> HeadPlan::blocks_seen(int64_t first, int64_t last) const {
  const auto [begin, end] = Problem::keys_seen(bias, first, last, keys);
  return {begin / block_rows, begin < end ? ceil_div(end, block_rows) : begin / block_rows};
}

BlockNumbers::BlockNumbers(const Problem& problem, Of rows) {
  const int64_t heads = rows == Of::queries ? problem.heads : problem.kv_heads;
  for (const Sequence& sequence : problem.sequences) {
    base_.push_back(size_);
    blocks_.push_back(ceil_div(rows == Of::queries ? sequence.queries : sequence.keys, block_rows));
    size_ += heads * blocks_.back();
  }
}

PackedKeys::PackedKeys(const Problem& problem)
    : block_size_(steps_of(problem.head_dim) * block_rows * block_rows),
      kv_heads_(problem.kv_heads),
      numbers_(problem, BlockNumbers::Of::keys) {
  const int64_t blocks = numbers_.size();
  memory_ = allocate(static_cast<size_t>(2 * blocks * block_size_) * sizeof(uint16_t), false);
  rows_ = static_cast<uint16_t*>(memory_.get());
  transposed_ = rows_ + blocks * block_size_;
  std::vector<float> norms(static_cast<size_t>(blocks)), values(norms.size());
  const auto sequences = static_cast<int64_t>(problem.sequences.size());
  for (int64_t s = 0; s < sequences; ++s) {
    const auto at_sequence = static_cast<size_t>(s);
    const Sequence& sequence = problem.sequences[at_sequence];
    const int64_t count = numbers_.blocks(at_sequence);
    parallel_ranges(kv_heads_ * count, 16, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t head = i % kv_heads_, row = i / kv_heads_ * block_rows;  // heads lie side by side in memory
        const int64_t at = numbers_.at(at_sequence, head, row / block_rows);
        const auto source = [&](const Rows& tensor) {
          return source_at(tensor, sequence.batch, sequence.key_begin + row, head, sequence.keys - row,
                           problem.head_dim);
        };
        alignas(64) float row_norm[block_rows];
        pack_rows(source(problem.k), rows_ + at * block_size_);
        uint16_t* tiles = transposed_ + numbers_.at(at_sequence, head, 0) * block_size_ + row * block_rows;
        pack_transposed(source(problem.v), tiles, count * block_rows * block_rows);
        norms[static_cast<size_t>(at)] = row_norms(source(problem.k), row_norm);
        values[static_cast<size_t>(at)] = largest(source(problem.v));
      }
    });
  }
  for (const float value : values) largest_value_ = std::max(largest_value_, value);
  constexpr float most = std::numeric_limits<float>::max();
  finite_ = largest_value_ <= most && std::all_of(norms.begin(), norms.end(), [](float n) { return n <= most; });
  // Running maxima of each head, from either end.
  const auto heads = static_cast<size_t>(sequences * kv_heads_);
  before_.assign(norms.size() + heads, 0.0f);
  from_ = before_;
  size_t in = 0, out = 0;
  for (int64_t i = 0; i < sequences * kv_heads_; ++i) {
    const auto count = static_cast<size_t>(numbers_.blocks(static_cast<size_t>(i / kv_heads_)));
    for (size_t b = 0; b < count; ++b) before_[out + b + 1] = std::max(before_[out + b], norms[in + b]);
    for (size_t b = count; b-- > 0;) from_[out + b] = std::max(from_[out + b + 1], norms[in + b]);
    in += count;
    out += count + 1;
  }
}

KeyView PackedKeys::view(size_t sequence, int64_t kv_head) const {
  const int64_t at = numbers_.at(sequence, kv_head, 0);
  const int64_t heads_before = static_cast<int64_t>(sequence) * kv_heads_ + kv_head;
  return {.rows = rows_ + at * block_size_,
          .transposed = transposed_ + at * block_size_,
          .norm_before = before_.data() + at + heads_before,
          .norm_from = from_.data() + at + heads_before};
}

}  // namespace alibi::kernels::amx
#endif
