// How the backward pass is cut: chunks of queries, each with its own sums for the keys it sees.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "attention/blocks.h"

namespace alibi::kernels {

/// Sums of the gradient of one head's bias.
class BiasGradient {
 public:
  explicit BiasGradient(const Problem& problem) : buckets_(static_cast<size_t>(problem.num_buckets), 0.0) {}

  /// Takes in the gradient of the scores at a distance.
  void Add(const Problem& problem, const QueryBlock& block, int64_t distance, double dscore);

  void Add(const BiasGradient& other);

  double slope() const { return slope_; }
  const std::vector<double>& buckets() const { return buckets_; }

 private:
  double slope_ = 0;
  std::vector<double> buckets_;
};

/// Rows [row_begin, row_end) of all heads that read a key/value head, and their share of its gradients.
struct Chunk {
  Chunk(size_t sequence_index, int64_t head, int64_t begin, int64_t end)
      : sequence(sequence_index), kv_head(head), row_begin(begin), row_end(end) {}

  size_t sequence = 0;
  int64_t kv_head = 0;
  int64_t row_begin = 0, row_end = 0;
  int64_t first = 0, last = 0;  ///< key blocks visited by any of the rows
  int64_t work = 0;
  std::shared_ptr<float> dk, dv;   ///< [(last - first) * key_rows][head_dim rounded up to 16]
  std::vector<BiasGradient> bias;  ///< of each head of the group, if anyone asked
};

/// The chunks of one key/value head of one sequence.
struct ChunkGroup {
  std::vector<Chunk> chunks;
  int64_t key_blocks = 0;
};

/// Key blocks [first, last) that the forward pass visited for a query block.
std::pair<int64_t, int64_t> visited_keys(const AttentionState& state, const BlockIndex& index, size_t sequence,
                                         const QueryBlock& block);

std::vector<ChunkGroup> chunk_groups(const Problem& problem, const AttentionState& state, const BlockIndex& index,
                                     const BiasSums& sums);

/// All chunks, group after group, so that few groups' sums are alive at a time; the most work first, of the groups and
/// within each.
class ChunkOrder {
 public:
  explicit ChunkOrder(std::vector<ChunkGroup>& groups);
  int64_t size() const { return static_cast<int64_t>(order_.size()); }
  std::pair<ChunkGroup*, Chunk*> at(int64_t task) const { return order_[static_cast<size_t>(task)]; }

 private:
  std::vector<std::pair<ChunkGroup*, Chunk*>> order_;
};

void allocate_sums(const Problem& problem, Chunk& chunk);
void release_sums(Chunk& chunk);

/// Adds the chunks' bias gradients to what the caller gave, in a fixed order.
void add_bias_gradients(const Problem& problem, const std::vector<ChunkGroup>& groups, const BiasSums& sums);

}  // namespace alibi::kernels
