// CUDA for host code that launches kernels, without CUDA's headers. All of it works on the device that is current and
// in the stream of this thread, alibi::stream(); `operation` begins the message of an Error.
#pragma once

#include <cstddef>
#include <memory>

#include "alibi/stream.h"

namespace alibi::core::cuda {

/// Throws Error with CUDA's words unless this cudaError_t is cudaSuccess.
void check_cuda(const char* operation, int error);

/// Memory of the device, aligned to 256 bytes and counted in tensor_bytes() while it lives. Taken in the order of the
/// stream and given back in it: it may be dropped as soon as the kernels that use it are launched.
std::shared_ptr<void> workspace(const char* operation, size_t bytes);

/// Waits until the work of the stream so far and the copy are done.
void copy_to_device(const char* operation, void* to, const void* from, size_t bytes);
/// Waits until the work of the stream so far is done.
void wait(const char* operation);
void copy_to_host(const char* operation, void* to, const void* from, size_t bytes);
/// Queued: every byte to zero.
void clear(const char* operation, void* to, size_t bytes);

/// What is queued in the stream `second` from now on waits for what is queued in `first` so far.
void order_streams(const char* operation, void* first, void* second);

/// Whether the stream is being captured into a CUDA graph. What waits, or copies from memory of the CPU, then throws
/// Error.
bool capturing(const char* operation);

/// Of this thread.
int current_device(const char* operation);
/// The device whose memory this is; -1: of none that CUDA knows.
int device_of(const char* operation, const void* data);
/// Of the device that is current.
int multiprocessors(const char* operation);
/// The most shared memory that a block of threads may ask for.
int shared_bytes(const char* operation);

}  // namespace alibi::core::cuda
