// Caches whose keys are in a device's memory: the parts of KvCache and attention_decode() that differ for them.
#pragma once

#include <cstdint>

#include "alibi/kv_cache.h"
#include "core/access.h"

namespace alibi::kernels {

/// Throws Error if the device has no caches for this head_dim and data type, or if this build does not support the
/// device.
void check_device_cache(int64_t head_dim, DType dtype, Device device);

/// Moves the keys, values and skip-rule bounds of a cache into new memory on its device, with room for `capacity` keys.
void move_device_cache(core::StateOf<KvCache>& cache, int64_t capacity);
/// Appends rows that have been checked. There must be room for them.
/// Appends gates [batch, new keys, query heads] that have been checked, before their keys.
void append_gates_on_device(core::StateOf<KvCache>& cache, const Tensor& log_decay);
void append_on_device(core::StateOf<KvCache>& cache, const Tensor& k, const Tensor& v);
void truncate_on_device(core::StateOf<KvCache>& cache, int64_t length);

/// attention_decode() over a cache on a device.
void decode_on_device(const Tensor& q, const KvCache& cache, const AttentionOptions& options, Tensor& out,
                      AttentionState* state);

}  // namespace alibi::kernels
