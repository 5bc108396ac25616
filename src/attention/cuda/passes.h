// The passes of attention on a device: which calls it supports, what is sent to it, and the order of the kernels. The
// device is that of CUDA (kernel.cc) or, in tests, the emulated one.
#pragma once

#include <cstddef>
#include <memory>

#include "attention/cuda/arguments.h"
#include "attention/kernel.h"
#include "attention/problem.h"

namespace alibi::kernels::cuda {

/// Memory and kernels of a device. core/cuda/stream.h describes each function.
class Machine {
 public:
  virtual ~Machine() = default;

  virtual std::shared_ptr<void> workspace(size_t bytes) const = 0;
  virtual void copy_to_device(void* to, const void* from, size_t bytes) const = 0;
  virtual void copy_to_host(void* to, const void* from, size_t bytes) const = 0;
  /// Throws Error if this cudaError_t is not cudaSuccess.
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

/// Throws Error if a tensor of the call is on another device than the current one.
void check_device(const Machine& machine, const Problem& problem);

/// Whether kernels apply the skip rule.
bool asks_skip_rule(const Problem& problem);

/// See Kernel.
bool supports(const Problem& problem);
bool forward(const Machine& machine, const Problem& problem, AttentionState* state);
bool backward(const Machine& machine, const Problem& problem, const AttentionState& state, const BiasSums& sums);

/// See CacheKernel.
void note_keys(const Machine& machine, const Tensor& keys, int64_t begin, const CachedBounds& bounds);
bool decode(const Machine& machine, const Problem& problem, const CachedBounds& bounds, AttentionState* state);

}  // namespace alibi::kernels::cuda
