// Rows of a q8_0 cache.
#pragma once

#include <cstdint>

#include "attention/decode/kv_cache_state.h"

namespace alibi::kernels {

/// Rounds a row to q8_0; `numbers` is a multiple of 32. Returns its distance from the result, rounded up, or +infinity
/// if a number is not finite. Then its block is not finite either.
float quantize_row(const float* from, int64_t numbers, q8_block* to);

/// to = `blocks` blocks as float32, exactly.
void widen_blocks(const q8_block* from, int64_t blocks, float* to);

/// A float32 copy of the keys or values of a q8_0 cache that shares and has evicted none, [batch, length, kv_heads,
/// head_dim].
Tensor widened_rows(const core::StateOf<KvCache>& cache, const Tensor& rows);

}  // namespace alibi::kernels
