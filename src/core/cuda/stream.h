// CUDA functions for host code that launches kernels, without CUDA's headers. All functions use the current device and
// this thread's stream, alibi::stream(). Error messages begin with `operation`.
#pragma once

#include <cstddef>
#include <memory>

#include "alibi/stream.h"

namespace alibi::core::cuda {

/// Throws Error with CUDA's message unless `error` is cudaSuccess.
void check_cuda(const char* operation, int error);

/// Device memory, aligned to 256 bytes and counted in tensor_bytes(). Allocation and release are ordered in the stream,
/// so the memory may be released as soon as the kernels that use it have been launched.
std::shared_ptr<void> workspace(const char* operation, size_t bytes);

/// Copies, and waits until the copy and all earlier work of the stream are done.
void copy_to_device(const char* operation, void* to, const void* from, size_t bytes);
/// Waits until all work queued in the stream so far is done.
void wait(const char* operation);
void copy_to_host(const char* operation, void* to, const void* from, size_t bytes);
/// Queues a fill with zero bytes.
void clear(const char* operation, void* to, size_t bytes);

/// Later work in the stream `second` waits for the work queued in `first` so far.
void order_streams(const char* operation, void* first, void* second);

/// Whether the stream is being captured into a CUDA graph. Functions that wait, or that copy from the CPU's memory,
/// throw Error during a capture.
bool capturing(const char* operation);

/// The device that is current in this thread.
int current_device(const char* operation);
/// The device that owns this memory, or -1 if CUDA does not know the pointer.
int device_of(const char* operation, const void* data);
/// Maximum shared memory of a thread block in bytes.
int shared_bytes(const char* operation);

}  // namespace alibi::core::cuda
