// The passes of attention on a device: the supported calls, the data sent to the device, and the order of the kernels.
// The device is CUDA (kernel.cc) or, in tests, an emulated one.
#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "attention/cuda/arguments.h"
#include "attention/kernel.h"
#include "attention/problem.h"

namespace alibi::kernels::cuda {

/// Memory and kernels of a device. core/cuda/stream.h describes the functions.
class Machine {
 public:
  virtual ~Machine() = default;

  virtual std::shared_ptr<void> workspace(size_t bytes) const = 0;
  virtual void copy_to_device(void* to, const void* from, size_t bytes) const = 0;
  virtual void copy_to_host(void* to, const void* from, size_t bytes) const = 0;
  /// Throws Error unless `error`, a cudaError_t, is cudaSuccess.
  virtual void check_launch(const char* kernel, int error) const = 0;
  virtual const Launches& launches(Form form = Form::slopes) const = 0;
  virtual void* stream() const = 0;
  /// Whether the stream is being captured into a CUDA graph.
  virtual bool capturing() const = 0;
  /// Maximum shared memory of a thread block.
  virtual int shared_bytes() const = 0;
  virtual int device() const = 0;
  /// The device that owns this memory, or -1 if unknown.
  virtual int device_of(const void* data) const = 0;
};

/// Throws Error if a tensor of the call is on a device other than the current one.
void check_device(const Machine& machine, const Problem& problem);

/// Whether the kernels apply the skip rule.
bool asks_skip_rule(const Problem& problem);

inline Form form_of(const Problem& problem) { return problem.log_decay.defined() ? Form::gates : Form::slopes; }

/// See Kernel.
std::string refusal(const Problem& problem);
inline bool supports(const Problem& problem) { return refusal(problem).empty(); }
bool forward(const Machine& machine, const Problem& problem, AttentionState* state);
bool backward(const Machine& machine, const Problem& problem, const AttentionState& state, const BiasSums& sums);

/// Sums the gates [batch, keys, heads] of the call's keys from block `first` on.
void sum_gates(const Machine& machine, const Call& call, const Tensor& log_decay, GateBlock* blocks, int64_t first);

/// See CacheKernel.
void note_keys(const Machine& machine, const Tensor& keys, int64_t begin, const CachedBounds& bounds);
void note_gates(const Machine& machine, int64_t begin, int64_t length, const CachedBounds& bounds);
bool decode(const Machine& machine, const Problem& problem, const CachedBounds& bounds, AttentionState* state);

}  // namespace alibi::kernels::cuda
