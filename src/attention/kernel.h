// The interface of a family of attention kernels, and of cached decoding on a device. Cached decoding on the CPU is in
// decode/.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "attention/problem.h"
#include "core/device.h"

namespace alibi::kernels {

/// How a kernel computes calls with a part of the keys (key_part.h).
struct PartSupport {
  int64_t query_rows = 0, key_rows = 0;  ///< rows of its blocks
  int64_t blocks_at_once = 0;            ///< key blocks that it visits before it applies the skip rule again
  /// Maxima over the keys of the tensors. The kernel needs those over all keys: KeyPart::maxima.
  std::vector<float> (*key_maxima)(const Problem& problem) = nullptr;
};

/// `forward` writes out and, unless state is null, lse and the data that its own backward pass needs. The caller
/// allocates the tensors of the state. Both passes are called only for problems that `supports` accepts. They return
/// false if they find infinity or NaN and cannot handle it. Then the state is unchanged, the output tensors are
/// undefined, and the next kernel computes the call.
struct Kernel {
  bool (*supports)(const Problem& problem);
  bool (*forward)(const Problem& problem, AttentionState* state);
  bool (*backward)(const Problem& problem, const AttentionState& state, const BiasSums& sums);
  const PartSupport* parts = nullptr;  ///< null if every call must have all keys
  /// Why `supports` does not accept the problem, or empty. Null: the kernel does not say.
  std::string (*refusal)(const Problem& problem) = nullptr;
};

/// bfloat16 on machines with AMX.
const Kernel& amx_kernel();
/// Float32 arithmetic on any instruction set. It supports every problem.
const Kernel& vector_kernel();
/// A few queries over keys in pages, as in decode/. Forward only.
const Kernel& paged_decode_kernel();
/// bfloat16 and float16 on NVIDIA GPUs. In a build without CUDA it supports no problem.
const Kernel& cuda_kernel();
/// Calls run(kernel) with the kernels of the CPU that support the problem, from the fastest to the slowest, until one
/// returns true.
bool run_on_cpu(const Problem& problem, const std::function<bool(const Kernel&)>& run);

/// The kernels of devices other than the CPU in this build. The tensors of the problem, the sums and the state are in
/// the device's memory. Everything else is in the CPU's memory.
core::PerDevice<Kernel>& device_kernels();
/// Throws Error, with the reason, unless the problem's device has a kernel that supports it.
void check_supported(const char* operation, const Problem& problem);

/// The bounds that a device keeps for the keys of a cache, for the skip rule. For each key/value head of each batch
/// entry it is a tree of maxima, as on the CPU (decode/kv_cache_norms.h). Level 0 stores, for each block of 64 keys,
/// upper bounds of ||k|| and of the distance from the centre. A node of a higher level is the maximum of 16 nodes of
/// the level below. The centre is that of the first 64 keys, and zero while there are fewer.
struct CachedBounds {
  std::vector<Tensor> levels;  ///< [batch * kv_heads, nodes, 2] float32, for the capacity of the cache
  Tensor centres;              ///< [batch * kv_heads, head_dim]
  Tensor centre_norms;         ///< [batch * kv_heads]
  // With gates, for the capacity too; undefined without.
  Tensor log_decay;  ///< [batch, keys, query heads] float32
  Tensor gates;      ///< [batch * query heads, blocks + 1, gate_block_floats]: their sums, in the device's own form
};
inline constexpr int64_t gate_block_floats = 264;

/// Cached decoding on a device. Calls are queued; they do not wait.
struct CacheKernel {
  /// Updates the bounds after keys [batch, length, kv_heads, head_dim] were added from `begin` on. The block of 64 keys
  /// that contains `begin` already includes the keys before it.
  void (*note_keys)(const Tensor& keys, int64_t begin, const CachedBounds& bounds);
  /// Updates the sums of the gates, of which those from `begin` up to `length` are new.
  void (*note_gates)(int64_t begin, int64_t length, const CachedBounds& bounds);
  /// Attention over the keys of the cache, which are the keys of the problem. Returns false if the device does not
  /// support this call.
  bool (*decode)(const Problem& problem, const CachedBounds& bounds, AttentionState* state);
};

/// CUDA's cache kernel, or null in a build without CUDA.
const CacheKernel* cuda_cache_kernel();
/// The cache kernels of devices other than the CPU in this build.
core::PerDevice<CacheKernel>& device_cache_kernels();

}  // namespace alibi::kernels
