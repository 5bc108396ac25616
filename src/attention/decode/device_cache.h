// Caches whose keys lie on a device, which attends to them there: what KvCache and attention_decode() do otherwise
// then.
#pragma once

#include <cstdint>

#include "alibi/kv_cache.h"

namespace alibi::kernels {

/// Throws Error if no device of this build has caches of these.
void check_device_cache(int64_t head_dim, DType dtype, Device device);

/// Memory for as many keys on the cache's device, and a copy of those there are, with what the skip rule knows of them.
void move_device_cache(KvCache::State& cache, int64_t capacity);
/// Puts checked rows, for which there is room, behind the keys there are.
void append_on_device(KvCache::State& cache, const Tensor& k, const Tensor& v);
void truncate_on_device(KvCache::State& cache, int64_t length);

/// attention_decode() over a cache on a device.
void decode_on_device(const Tensor& q, const KvCache& cache, const AttentionOptions& options, Tensor& out,
                      AttentionState* state);

}  // namespace alibi::kernels
