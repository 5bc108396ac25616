// Counted, aligned memory: every tensor and workspace comes from here, so peaks can be reported.
#pragma once

#include <cstddef>
#include <memory>

namespace alibi {

/// Memory aligned to 64 bytes (never null, also for size 0), counted in tensor_bytes() while it lives; zeros, or
/// undefined. Throws Error if the system has none left.
std::shared_ptr<void> allocate(size_t bytes, bool zeros);

/// Throws Error if the system would not give so much memory now; for calls into code that does not look whether it got
/// any. `operation` begins the message.
void require_memory(const char* operation, size_t bytes);

}  // namespace alibi
