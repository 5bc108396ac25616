// How the backward pass of the vector kernels is cut: chunks of queries, each with its own sums for the keys it sees.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "attention/bias_gradient.h"
#include "attention/vector/blocks.h"

namespace alibi::kernels {

/// Some rows of all heads that read a key/value head, and their share of its gradients.
struct Chunk {
  size_t sequence = 0;
  int64_t kv_head = 0;
  Range rows;
  Range key_blocks;  ///< visited by any of the rows
  int64_t work = 0;
  std::shared_ptr<float> dk, dv;   ///< [key_blocks * key_rows][head_dim rounded up to 16]
  std::vector<BiasGradient> bias;  ///< of each head of the group, if anyone asked
};

/// The chunks of one key/value head of one sequence.
struct ChunkGroup {
  std::vector<Chunk> chunks;
  int64_t key_blocks = 0;
  int64_t work = 0;
};

/// Key blocks that the forward pass visited for a query block.
Range visited_key_blocks(const AttentionState& state, const BlockIndex& index, size_t sequence,
                         const QueryBlock& block);

std::vector<ChunkGroup> chunk_groups(const Problem& problem, const AttentionState& state, const BlockIndex& index,
                                     const BiasGradients& bias);

/// All chunks, group after group, so that few groups' sums are alive at a time; the most work first, of the groups and
/// within each.
std::vector<std::pair<ChunkGroup*, Chunk*>> chunk_tasks(std::vector<ChunkGroup>& groups);

void allocate_sums(const Problem& problem, Chunk& chunk);
void release_sums(Chunk& chunk);

}  // namespace alibi::kernels
