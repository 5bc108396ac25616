// Counted, aligned memory. Every tensor and workspace is allocated here, so peaks can be reported.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace alibi::core {

/// Allocates memory aligned to 64 bytes and counted in tensor_bytes(). The pointer is never null, even for size 0. The
/// memory is filled with zeros, or undefined. Throws Error if the system is out of memory.
std::shared_ptr<void> allocate(size_t bytes, bool zeros);

/// Adds memory from another source, such as a device, to tensor_bytes(). A negative number subtracts it.
void count_bytes(int64_t bytes);

/// During its lifetime, freed large blocks are kept and reused, because new pages of the system cost as much as a small
/// matrix product. Use it around loops that allocate the same memory repeatedly. A block serves requests of at least
/// half its size. Allocated and kept memory together never exceed the peak of allocated memory. The last KeepMemory
/// frees the kept blocks.
class KeepMemory {
 public:
  KeepMemory();
  ~KeepMemory();
  KeepMemory(const KeepMemory&) = delete;
  KeepMemory& operator=(const KeepMemory&) = delete;
};
/// Number of bytes that are kept.
size_t kept_bytes();

/// Whether the system could allocate this much memory now. Use it before calls into code that does not check its
/// allocations.
bool has_memory(size_t bytes);

/// Throws Error if has_memory() is false. The message begins with `operation`.
void require_memory(const char* operation, size_t bytes);

}  // namespace alibi::core
