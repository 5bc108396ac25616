// Counted, aligned memory: every tensor and workspace comes from here, so peaks can be reported.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace alibi::core {

/// Memory aligned to 64 bytes (never null, also for size 0), counted in tensor_bytes() while it lives; zeros, or
/// undefined. Throws Error if the system has none left.
std::shared_ptr<void> allocate(size_t bytes, bool zeros);

/// Memory that comes from elsewhere, a device's, counts in tensor_bytes() too: more of it, or less.
void count_bytes(int64_t bytes);

/// While one lives, large blocks that are given back are kept for those who ask next, because the system's fresh pages
/// cost as much as a small product: for loops that need the same memory again and again. A block serves requests of
/// half its size or more. What is asked for and what is kept never exceed together what was asked for at most; with the
/// last of them goes what was kept.
class KeepMemory {
 public:
  KeepMemory();
  ~KeepMemory();
  KeepMemory(const KeepMemory&) = delete;
  KeepMemory& operator=(const KeepMemory&) = delete;
};
/// How much is kept now.
size_t kept_bytes();

/// Whether the system would give so much memory now: for calls into code that does not look whether it got any.
bool has_memory(size_t bytes);

/// Throws Error if it would not. `operation` begins the message.
void require_memory(const char* operation, size_t bytes);

}  // namespace alibi::core
