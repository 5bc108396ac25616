// Data that the AMX kernels prepare before they start: blocks of 32 queries and 32 keys, the bias in units of exp2, and
// the keys in the layout of the tiles.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "attention/skip/weights.h"

namespace alibi::kernels::amx {

/// Key blocks that the forward pass visits at once: enough that loading and storing O costs little, and few enough that
/// P fits the first-level cache.
constexpr int64_t item_blocks = 8;

/// One head of one sequence. Scores are in the units of exp2: factor * (q . k) + bias * log2(e).
struct HeadPlan {
  HeadPlan(const Problem& problem, size_t sequence_index, int64_t head_index);

  /// Key blocks that at least one of the queries at positions [first, last] sees.
  Range blocks_seen(int64_t first, int64_t last) const;

  size_t sequence = 0;
  int64_t head = 0;
  HeadBias bias;           ///< distances that are seen
  float factor = 0;        ///< scale * log2(e)
  float largest_bias = 0;  ///< most that the bias adds to a score
  int64_t keys = 0;
};

/// The keys of one key/value head of one sequence, by block.
struct KeyView {
  const uint16_t* rows = nullptr;        ///< keys: `rows` tiles, [block][step]
  const uint16_t* transposed = nullptr;  ///< values: `transposed` tiles, [step][block]
  int64_t first = 0, count = 0;          ///< the key blocks of the tiles
  float longest = 0;                     ///< upper bound of the norms of the keys
};

/// All keys and values of a call in tiles, with bounds.
class PackedKeys {
 public:
  explicit PackedKeys(const Problem& problem);
  KeyView view(size_t sequence, int64_t kv_head) const;
  /// False if any key or value is infinite, NaN, or so large that its square overflows.
  bool finite() const;
  float largest_value() const { return maxima_.back(); }
  /// Null if the skip rule does not apply.
  const WeightBounds* bounds() const { return bounds_; }

 private:
  int64_t block_size_;  ///< number of values in a block of tiles
  int64_t kv_heads_;
  BlockIndex index_;           ///< of the blocks of the tensors
  int64_t first_ = 0;          ///< number of the tensors' first block
  std::vector<float> maxima_;  ///< [sequences * kv_heads]: norms of keys; then the magnitude of values
  std::optional<WeightBounds> own_bounds_;
  const WeightBounds* bounds_ = nullptr;
  std::shared_ptr<void> memory_;
  uint16_t* rows_ = nullptr;
  uint16_t* transposed_ = nullptr;
};

/// Upper bounds of the norms of the keys of each key/value head [sequences * kv_heads], and at the end the largest
/// magnitude of the values. Infinite if any is infinite or NaN.
std::vector<float> key_maxima(const Problem& problem);

/// A task of the forward pass: some query blocks of one head, which share the key blocks that they load.
struct ForwardTask {
  static constexpr int64_t blocks_together = 8;
  size_t sequence = 0;
  int64_t head = 0;
  int64_t block = 0;  ///< the first query block
  int64_t work = 0;
};

AttentionStats forward_task(const Problem& problem, const ForwardTask& task, const PackedKeys& keys,
                            const BlockIndex& index, AttentionState* state);

}  // namespace alibi::kernels::amx
