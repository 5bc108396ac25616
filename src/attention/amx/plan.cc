#include "attention/amx/plan.h"

#include <algorithm>
#include <limits>
#include <numbers>
#include <numeric>

#include "attention/amx/pack.h"
#include "attention/amx/tiles.h"
#include "attention/key_part.h"
#include "attention/workspace.h"
#include "core/memory.h"
#include "core/parallel.h"

namespace alibi::kernels::amx {
namespace {

/// Numbers the blocks of the keys that are in the tensors.
BlockIndex index_of_tensors(const Problem& problem) {
  if (problem.part == nullptr) return {problem, BlockIndex::Of::keys, block_rows};
  Problem part = problem;
  for (Sequence& sequence : part.sequences) sequence.keys = problem.part->rows.size();
  return {part, BlockIndex::Of::keys, block_rows};
}

/// Calls visit(sequence, kv_head, block) for the blocks of key rows of the tensors that have values, in parallel.
/// Blocks are numbered within their sequences.
template <class Visit>
void for_each_block(const Problem& problem, const Visit& visit) {
  for (size_t s = 0; s < problem.sequences.size(); ++s) {
    const int64_t rows = problem.part != nullptr ? problem.part->rows.end : problem.sequences[s].keys;
    const Range blocks = blocks_of({problem.part != nullptr ? problem.part->rows.begin : 0, rows}, block_rows);
    core::parallel_ranges(problem.kv_heads * blocks.size(), 16, [&](int64_t begin, int64_t end) {
      const FlushDenormals flush;
      for (int64_t i = begin; i < end; ++i) {
        const int64_t head = i % problem.kv_heads,
                      block = blocks.begin + i / problem.kv_heads;  // the heads of a row are adjacent in memory
        const Range readable = readable_key_blocks(problem, s, head, block_rows);
        if (readable.begin <= block && block < readable.end) visit(s, head, block);
      }
    });
  }
}

/// Up to 32 rows of keys or values.
Source source_of(const Problem& problem, const TensorView& tensor, size_t s, int64_t kv_head, int64_t block) {
  const Sequence& sequence = problem.sequences[s];
  const int64_t row = block * block_rows;
  const KeyRow place = problem.key_row(sequence, row);
  return source_at(tensor, place.batch, place.row, kv_head, sequence.keys - row, problem.head_dim);
}

}  // namespace

HeadPlan::HeadPlan(const Problem& problem, size_t sequence_index, int64_t head_index)
    : sequence(sequence_index), head(head_index) {
  const Sequence& s = problem.sequences[sequence];
  bias = problem.bias(s, head);
  factor = problem.scale * std::numbers::log2e_v<float>;
  largest_bias = bias->rise() * std::numbers::log2e_v<float>;
  keys = s.keys;
}

Range HeadPlan::blocks_seen(int64_t first, int64_t last) const {
  return blocks_of(Problem::keys_seen(bias, first, last, keys), block_rows);
}

namespace {

/// Computes what key_maxima() returns, block by block.
class Maxima {
 public:
  explicit Maxima(const BlockIndex& index)
      : index_(index), norms_(static_cast<size_t>(index.size())), values_(norms_.size()) {}

  /// Different blocks may be added at the same time.
  void add(const Problem& problem, size_t s, int64_t head, int64_t block, int64_t at) {
    alignas(64) float row_norm[block_rows];
    norms_[static_cast<size_t>(at)] = row_norms(source_of(problem, problem.k, s, head, block), row_norm);
    values_[static_cast<size_t>(at)] = largest(source_of(problem, problem.v, s, head, block));
  }
  std::vector<float> result() const {
    std::vector<float> maxima;
    for (size_t s = 0; s < index_.sequences(); ++s) {
      for (int64_t head = 0; head < index_.heads(); ++head) {
        const auto begin = norms_.begin() + index_.at(s, head, 0);
        maxima.push_back(std::accumulate(begin, begin + index_.blocks(s), 0.0f, larger));
      }
    }
    maxima.push_back(std::accumulate(values_.begin(), values_.end(), 0.0f, larger));
    return maxima;
  }

 private:
  static float larger(float a, float b) { return std::max(a, b); }

  const BlockIndex& index_;
  std::vector<float> norms_, values_;
};

int64_t first_block_of(const Problem& problem) {
  return problem.part != nullptr ? problem.part->rows.begin / block_rows : 0;
}

}  // namespace

std::vector<float> key_maxima(const Problem& problem) {
  const BlockIndex index = index_of_tensors(problem);
  const int64_t first = first_block_of(problem);
  Maxima maxima(index);
  for_each_block(problem, [&](size_t s, int64_t head, int64_t block) {
    maxima.add(problem, s, head, block, index.at(s, head, block - first));
  });
  return maxima.result();
}

PackedKeys::PackedKeys(const Problem& problem)
    : block_size_(steps_of(problem.head_dim) * block_rows * block_rows),
      kv_heads_(problem.kv_heads),
      index_(index_of_tensors(problem)),
      first_(first_block_of(problem)) {
  memory_ = core::allocate(static_cast<size_t>(2 * index_.size() * block_size_) * sizeof(uint16_t), false);
  rows_ = static_cast<uint16_t*>(memory_.get());
  transposed_ = rows_ + index_.size() * block_size_;
  const bool is_whole = problem.part == nullptr;
  if (is_whole && skip_rule_applies(problem)) own_bounds_.emplace(problem, block_rows);
  bounds_ = !is_whole ? problem.part->bounds : own_bounds_ ? &*own_bounds_ : nullptr;
  Maxima maxima(index_);
  for_each_block(problem, [&](size_t s, int64_t head, int64_t block) {
    const int64_t at = index_.at(s, head, block - first_), step_size = index_.blocks(s) * block_rows * block_rows;
    pack_rows(source_of(problem, problem.k, s, head, block), rows_ + at * block_size_);
    uint16_t* const tiles = transposed_ + index_.at(s, head, 0) * block_size_;
    pack_transposed(source_of(problem, problem.v, s, head, block), tiles + (block - first_) * block_rows * block_rows,
                    step_size);
    if (is_whole) maxima.add(problem, s, head, block, at);
    if (own_bounds_) measure_keys(problem, s, head, block, *own_bounds_);
  });
  if (own_bounds_) own_bounds_->accumulate();
  maxima_ = is_whole ? maxima.result() : problem.part->maxima;
}

bool PackedKeys::finite() const {
  return std::all_of(maxima_.begin(), maxima_.end(),
                     [](float most) { return most <= std::numeric_limits<float>::max(); });
}

KeyView PackedKeys::view(size_t sequence, int64_t kv_head) const {
  const int64_t at = index_.at(sequence, kv_head, 0) * block_size_;
  return {.rows = rows_ + at,
          .transposed = transposed_ + at,
          .first = first_,
          .count = index_.blocks(sequence),
          .longest = maxima_[sequence * static_cast<size_t>(kv_heads_) + static_cast<size_t>(kv_head)]};
}

}  // namespace alibi::kernels::amx
