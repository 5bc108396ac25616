// Counted, aligned memory: every tensor and workspace comes from here, so peaks can be reported.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace alibi::core {

/// Memory aligned to 64 bytes (never null, also for size 0), counted in tensor_bytes(); filled with zeros, or
/// undefined. Throws Error if the system has no memory left.
std::shared_ptr<void> allocate(size_t bytes, bool zeros);

/// Adds memory from another source, such as a device, to tensor_bytes(), or subtracts it.
void count_bytes(int64_t bytes);

/// During its lifetime freed large blocks are kept and reused, because new pages of the system cost as much as a small
/// product. Use it around loops that allocate the same memory repeatedly. A block serves requests of at least half its
/// size. Allocated and kept memory together never exceed the peak of allocated memory. The last KeepMemory frees the
/// kept blocks.
class KeepMemory {
 public:
  KeepMemory();
  ~KeepMemory();
  KeepMemory(const KeepMemory&) = delete;
  KeepMemory& operator=(const KeepMemory&) = delete;
};
/// Bytes kept now.
size_t kept_bytes();

/// Whether the system would allocate this much memory now; for calls into code that does not check its allocations.
bool has_memory(size_t bytes);

/// Throws Error if it would not allocate it. `operation` begins the message.
void require_memory(const char* operation, size_t bytes);

}  // namespace alibi::core
