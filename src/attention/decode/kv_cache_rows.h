// Writing rows into a cache of the CPU's memory, and keeping what the skip rule reads about them.
#pragma once

#include <cstdint>

#include "attention/decode/kv_cache_state.h"

namespace alibi::kernels {

/// Copies rows [begin, end) of a head, which are in one block of keys, into the cache; `first` is the cache row of k's
/// and v's row 0.
void write_rows(core::StateOf<KvCache>& cache, const Tensor& k, const Tensor& v, int64_t head, int64_t first,
                int64_t begin, int64_t end);
/// Updates the leaf of the block that contains keys [begin, end).
void raise_norms(core::StateOf<KvCache>& cache, int64_t head, int64_t begin, int64_t end);
/// Recomputes the leaf of a block from its keys before `end`.
void set_norms(core::StateOf<KvCache>& cache, int64_t head, int64_t block, int64_t end);
/// Updates the upper levels of the trees after leaves from `block` on have changed.
void rebuild(core::StateOf<KvCache>& cache, int64_t head, int64_t block);
/// Computes the centre of the first keys as soon as there are enough of them. None of them has been evicted by then.
void set_centre(core::StateOf<KvCache>& cache, int64_t head);

}  // namespace alibi::kernels
