// The tasks that the passes of the vector kernels consist of (kernel.cc), each for the instruction set in use.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/skip_weights.h"
#include "attention/vector/blocks.h"
#include "attention/vector/chunks.h"

namespace alibi::kernels {

/// Attention of a task's queries. bounds: null if the skip rule is not asked.
AttentionStats vector_forward_task(const Problem& problem, const QueryTask& task, const WeightBounds* bounds,
                                   const BlockIndex& index, AttentionState* state);

/// dq of a chunk's queries, and its sums for dk, dv and the bias.
void vector_backward_chunk(const Problem& problem, const AttentionState& state, const BlockIndex& index, Chunk& chunk);

/// dk and dv of one key block: the sums of a group's chunks, in order.
void vector_write_key_gradients(const Problem& problem, const std::vector<Chunk>& chunks, int64_t key_block);

}  // namespace alibi::kernels
