// How the backward pass on AMX is cut. The keys and the queries of a sequence are cut into spans; a task takes one key
// span and one query span, and adds its share to the gradients of both. Tasks run in waves: within a wave no two touch
// the same span, so sums need neither locks nor copies, and the order of the waves fixes their bits.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "attention/amx_plan.h"
#include "attention/chunks.h"

namespace alibi::kernels::amx {

struct BackwardTask {
  size_t sequence = 0;
  int64_t kv_head = 0;
  int64_t key_block = 0, key_blocks = 0;             ///< the key span
  int64_t query_block = 0, query_blocks = 0;         ///< the query span, of all heads that read the key/value head
  bool first_of_keys = false, last_of_keys = false;  ///< among the tasks of the key span
  bool first_of_queries = false, last_of_queries = false;  ///< among those of the query span
  int64_t work = 0;                                        ///< block pairs
};

/// Key blocks [first, last) that the forward pass visited for each query block.
class VisitedBlocks {
 public:
  VisitedBlocks(const Problem& problem, const AttentionState& state);
  int32_t first(size_t sequence, int64_t head, int64_t block) const { return first_[at(sequence, head, block)]; }
  int32_t last(size_t sequence, int64_t head, int64_t block) const { return last_[at(sequence, head, block)]; }
  const BlockNumbers& numbers() const { return numbers_; }

 private:
  size_t at(size_t sequence, int64_t head, int64_t block) const {
    return static_cast<size_t>(numbers_.at(sequence, head, block));
  }

  BlockNumbers numbers_;
  std::vector<int32_t> first_, last_;
};

/// Float32 sums that outlive a task: those of spans that several tasks add to. Null where every span has one task.
class GradientSums {
 public:
  GradientSums(const Problem& problem, const BlockNumbers& queries, bool needed);
  bool used() const { return memory_ != nullptr; }
  float* dq(size_t sequence, int64_t head, int64_t block) const {
    return dq_ + queries_.at(sequence, head, block) * block_size_;
  }
  float* dk(size_t sequence, int64_t kv_head, int64_t block) const {
    return dk_ + keys_.at(sequence, kv_head, block) * block_size_;
  }
  float* dv(size_t sequence, int64_t kv_head, int64_t block) const {
    return dv_ + keys_.at(sequence, kv_head, block) * block_size_;
  }

 private:
  const BlockNumbers& queries_;
  BlockNumbers keys_;
  int64_t block_size_;
  std::shared_ptr<void> memory_;
  float* dq_ = nullptr;
  float* dk_ = nullptr;
  float* dv_ = nullptr;
};

/// The waves, each with the most work first.
std::vector<std::vector<BackwardTask>> backward_waves(const Problem& problem, const VisitedBlocks& visited);

/// `bias` takes the task's share of the gradient of the bias of each head of its group, unless it is null.
void backward_task(const Problem& problem, const BackwardTask& task, const AttentionState& state,
                   const VisitedBlocks& visited, const GradientSums& sums, std::vector<BiasGradient>* bias);

}  // namespace alibi::kernels::amx
