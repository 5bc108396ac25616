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
  if (problem.tolerance == 0) return seen;
  constexpr double typical = 30;  // keys that weigh less than exp(-typical) are rarely visited
  const auto horizon = [&](Side side) {
    return static_cast<int64_t>(std::min(bias->horizon(side, -typical, sequence.keys), 1e9)) + rows;
  };
  return std::min(seen, horizon(Side::before) + (problem.causal ? 0 : horizon(Side::after)));
}

}  // namespace alibi::kernels
