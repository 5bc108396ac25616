// The CUDA stream in which work is queued.
#pragma once

#include "alibi/export.h"

namespace alibi {

/// The cudaStream_t in which this thread's work on Device::cuda is queued. The default is null, CUDA's default stream.
ALIBI_API void* stream();

/// During the lifetime of this object, this thread's work on Device::cuda is queued in this stream, a cudaStream_t of
/// the current device (cudaSetDevice()), or the default stream if null. Calls may return before their work is done.
/// Tensors are allocated and freed in the order of the stream that they were created in. That stream must outlive them,
/// and reading them in another stream needs the usual synchronization.
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
