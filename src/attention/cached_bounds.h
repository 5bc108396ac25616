// What is known of the keys of a cache that lies on a device: there, for the skip rule, which asks before keys are
// read.
#pragma once

#include <cstdint>
#include <vector>

#include "attention/problem.h"
#include "core/device.h"

namespace alibi::kernels {

/// For each key/value head of each batch entry a tree of maxima, as on the CPU (decode/kv_cache_norms.h): level 0 holds
/// at least the largest ||k|| and the largest distance from the centre of each block of 64 keys, each other level the
/// largest of 16 nodes of the one below. The centre is that of the first 64 keys, zero while there are fewer.
struct CachedBounds {
  std::vector<Tensor> levels;  ///< [batch * kv_heads, nodes, 2] float32, as many as the room for keys needs
  Tensor centres;              ///< [batch * kv_heads, head_dim]
  Tensor centre_norms;         ///< [batch * kv_heads]
};

/// Cached decoding on a device. All of it is queued.
struct CacheKernel {
  /// Brings the bounds up to date: keys [batch, length, kv_heads, head_dim] from `begin` on are new, and the block of
  /// 64 that it lies in counts those before it already.
  void (*note_keys)(const Tensor& keys, int64_t begin, const CachedBounds& bounds);
  /// Attention over the cache's keys, which the problem has; false if it does not compute this call.
  bool (*decode)(const Problem& problem, const CachedBounds& bounds, AttentionState* state);
};

/// CUDA's; null in a build without.
const CacheKernel* cuda_cache_kernel();
/// Of this build; there is none for the CPU (decode/).
core::PerDevice<CacheKernel>& device_cache_kernels();

}  // namespace alibi::kernels
