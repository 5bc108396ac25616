// Division of the backward pass on AMX. The keys and the queries of a sequence are divided into spans. A task computes
// one key span with one query span and adds to the gradients of both. Tasks run in waves. No two tasks of a wave use
// the same span, so sums need neither locks nor copies, and the order of the waves determines their bits. Heads are
// computed in parts with enough work for many threads, and the next part reuses the memory of the sums.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "attention/amx/plan.h"
#include "attention/bias_gradient.h"

namespace alibi::kernels::amx {

struct BackwardTask {
  size_t sequence = 0;
  int64_t kv_head = 0;
  int64_t key_block = 0, key_blocks = 0;             ///< the key span
  int64_t query_block = 0, query_blocks = 0;         ///< the query span, of all heads that read the key/value head
  bool first_of_keys = false, last_of_keys = false;  ///< its position among the tasks of the key span
  bool first_of_queries = false, last_of_queries = false;  ///< its position among the tasks of the query span
  int64_t work = 0;                                        ///< number of block pairs
};

/// Key blocks that the forward pass visited for each query block.
class VisitedBlocks {
 public:
  VisitedBlocks(const Problem& problem, const AttentionState& state);
  const Range& at(size_t sequence, int64_t head, int64_t block) const {
    return visited_[static_cast<size_t>(index_.at(sequence, head, block))];
  }
  const BlockIndex& index() const { return index_; }

 private:
  BlockIndex index_;
  std::vector<Range> visited_;
};

/// Key/value heads that are computed together: the numbers [begin, end), counted head by head within each sequence.
/// Their tasks are divided into waves, and sorted by decreasing work within a wave.
struct BackwardPart {
  int64_t begin = 0, end = 0;
  std::vector<std::vector<BackwardTask>> waves;
};
std::vector<BackwardPart> backward_parts(const Problem& problem, const VisitedBlocks& visited);

/// Float32 sums of spans that several tasks add to. Each part starts at zero.
class GradientSums {
 public:
  GradientSums(const Problem& problem, const std::vector<BackwardPart>& parts);
  void start(const BackwardPart& part);
  /// Returns false if every span has only one task. Each task then has its own sums.
  bool used() const { return used_; }
  float* dq(size_t sequence, int64_t head, int64_t block) const {
    const int64_t group = problem_.group();
    return memory_at(sequence, head / group, head % group * query_blocks_[sequence] + block);
  }
  float* dk(size_t sequence, int64_t kv_head, int64_t block) const {
    return memory_at(sequence, kv_head, problem_.group() * query_blocks_[sequence] + block);
  }
  float* dv(size_t sequence, int64_t kv_head, int64_t block) const {
    return dk(sequence, kv_head, key_blocks_[sequence] + block);
  }

 private:
  /// Number of blocks of one key/value head: dq of its group, dk, dv.
  int64_t blocks_of(int64_t number) const;
  float* memory_at(size_t sequence, int64_t kv_head, int64_t block) const {
    const int64_t number = static_cast<int64_t>(sequence) * problem_.kv_heads + kv_head;
    return static_cast<float*>(memory_.get()) + (base_[static_cast<size_t>(number - begin_)] + block) * block_size_;
  }

  const Problem& problem_;
  int64_t block_size_;
  std::vector<int64_t> query_blocks_, key_blocks_;  ///< for each sequence
  std::shared_ptr<void> memory_;
  bool used_ = false;
  int64_t begin_ = 0;
  std::vector<int64_t> base_;  ///< first block of each head of the part
};

/// The sums of dS of each query and of each key, for the gradient of the gates. Tasks of a wave add to different ones.
class GateSums {
 public:
  explicit GateSums(const Problem& problem);
  bool used() const { return !of_keys_.empty(); }
  /// Adds scale * sums[32] to those of a block.
  void add(BlockIndex::Of of, size_t sequence, int64_t head, int64_t block, const float* sums, float scale);
  /// Adds the gradient to Problem::dlog_decay.
  void finish();

 private:
  const Problem& problem_;
  double* at(BlockIndex::Of of, size_t sequence, int64_t head, int64_t block);

  BlockIndex queries_, keys_;                 ///< of heads, and of key/value heads
  std::vector<double> of_queries_, of_keys_;  ///< [block][32], and [block][head of the group][32]
};

/// Adds the task's part of the gradient of the bias of each head of its group to `bias`, unless `bias` is empty.
/// Returns false if an input contains infinity or NaN, which these products cannot handle. The results are then
/// undefined.
bool backward_task(const Problem& problem, const BackwardTask& task, const AttentionState& state,
                   const VisitedBlocks& visited, const GradientSums& sums, GateSums& gates,
                   std::vector<BiasGradient>& bias);

}  // namespace alibi::kernels::amx
