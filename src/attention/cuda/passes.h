// The passes of attention on a device: which calls it takes, what is made known to it, and the kernels in turn. The
// device is CUDA's (kernel.cc), or in tests the emulated one.
#pragma once

#include <cstddef>
#include <memory>

#include "attention/cached_bounds.h"
#include "attention/cuda/arguments.h"
#include "attention/problem.h"

namespace alibi::kernels::cuda {

/// Memory and kernels of a device; as core/cuda/stream.h, where each is described.
class Machine {
 public:
  virtual ~Machine() = default;

  virtual std::shared_ptr<void> workspace(size_t bytes) const = 0;
  virtual void copy_to_device(void* to, const void* from, size_t bytes) const = 0;
  virtual void copy_to_host(void* to, const void* from, size_t bytes) const = 0;
  /// Throws Error unless this cudaError_t is cudaSuccess.
  virtual void check_launch(const char* kernel, int error) const = 0;
  virtual const Launches& launches() const = 0;
  virtual void* stream() const = 0;
  /// Whether the stream is being captured into a CUDA graph.
  virtual bool capturing() const = 0;
  /// The most shared memory of a block of threads.
  virtual int shared_bytes() const = 0;
  virtual int device() const = 0;
  /// The device whose memory this is; -1: not known.
  virtual int device_of(const void* data) const = 0;
};

/// Throws Error if a tensor of the call lies on another device than the current one.
void check_device(const Machine& machine, const Problem& problem);

/// Whether kernels are to skip.
bool asks_skip_rule(const Problem& problem);

/// See Kernel.
bool supports(const Problem& problem);
bool forward(const Machine& machine, const Problem& problem, AttentionState* state);
bool backward(const Machine& machine, const Problem& problem, const AttentionState& state, const BiasSums& sums);

/// See CacheKernel.
void note_keys(const Machine& machine, const Tensor& keys, int64_t begin, const CachedBounds& bounds);
bool decode(const Machine& machine, const Problem& problem, const CachedBounds& bounds, AttentionState* state);

}  // namespace alibi::kernels::cuda
