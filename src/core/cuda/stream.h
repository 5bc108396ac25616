// CUDA for host code that launches kernels, without CUDA's headers. All functions use the current device and the stream
// of this thread, alibi::stream(). `operation` begins the message of an Error.
#pragma once

#include <cstddef>
#include <memory>

#include "alibi/stream.h"

namespace alibi::core::cuda {

/// Throws Error with CUDA's message unless this cudaError_t is cudaSuccess.
void check_cuda(const char* operation, int error);

/// Memory of the device, aligned to 256 bytes and counted in tensor_bytes(). It is allocated and freed in the order of
/// the stream, so it may be destroyed as soon as the kernels that use it are launched.
std::shared_ptr<void> workspace(const char* operation, size_t bytes);

/// Waits until the work of the stream so far and the copy are done.
void copy_to_device(const char* operation, void* to, const void* from, size_t bytes);
/// Waits until the work of the stream so far is done.
void wait(const char* operation);
void copy_to_host(const char* operation, void* to, const void* from, size_t bytes);
/// Queues setting every byte to zero.
void clear(const char* operation, void* to, size_t bytes);

/// Later work in the stream `second` waits for the work queued in `first` so far.
void order_streams(const char* operation, void* first, void* second);

/// Whether the stream is being captured into a CUDA graph. Functions that wait, or copy from the CPU's memory, then
/// throw Error.
bool capturing(const char* operation);

/// Of this thread.
int current_device(const char* operation);
/// The device of this memory; -1 if CUDA does not know it.
int device_of(const char* operation, const void* data);
/// Of the device that is current.
int multiprocessors(const char* operation);
/// Maximum shared memory of a thread block.
int shared_bytes(const char* operation);

}  // namespace alibi::core::cuda
