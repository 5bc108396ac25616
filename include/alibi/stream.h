// Where the work of a GPU is queued.
#pragma once

#include "alibi/export.h"

namespace alibi {

/// The cudaStream_t in which this thread's work on Device::cuda is queued; null, CUDA's default stream, at first.
ALIBI_API void* stream();

/// While one lives, this thread's work on Device::cuda is queued in this stream (a cudaStream_t of the device that is
/// current, which CUDA's own cudaSetDevice() chooses; null: the default stream). Calls may return before it is done.
/// Memory of tensors is taken and given back in the order of the stream they were made in: that stream must outlive
/// them, and whoever reads them in another one must wait for it, as between any two streams.
class ALIBI_API UseStream {
 public:
  explicit UseStream(void* stream);
  ~UseStream();
  UseStream(const UseStream&) = delete;
  UseStream& operator=(const UseStream&) = delete;

 private:
  void* before_;
};

}  // namespace alibi
