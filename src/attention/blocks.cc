#include "attention/blocks.h"

#include "core/parallel.h"

namespace alibi::kernels {

BlockIndex::BlockIndex(const Problem& problem, Of rows, int64_t block_rows)
    : heads_(rows == Of::queries ? problem.heads : problem.kv_heads) {
  for (const Sequence& sequence : problem.sequences) {
    base_.push_back(size_);
    blocks_.push_back(core::ceil_div(rows == Of::queries ? sequence.queries : sequence.keys, block_rows));
    size_ += heads_ * blocks_.back();
  }
}

int64_t likely_keys(const Problem& problem, const Sequence& sequence, int64_t head, int64_t row, int64_t rows) {
  const HeadBias bias = problem.bias(sequence, head);
  const int64_t position = sequence.query_offset + row;
  const int64_t seen = Problem::keys_seen(bias, position, position + rows - 1, sequence.keys).size();
  const float slope = std::min(bias.slope_before, bias.slope_after);
  if (!(problem.tolerance > 0 && slope > 0)) return seen;
  constexpr float typical = 30;  // keys with a larger penalty are rarely visited
  const int64_t horizon = static_cast<int64_t>(std::min(typical / slope, 1e9f)) + rows;
  return std::min(seen, problem.causal ? horizon : 2 * horizon);
}

}  // namespace alibi::kernels
