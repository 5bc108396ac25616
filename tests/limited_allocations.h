// Memory that runs out: operator new of this program, which limited_allocations.cc replaces.
#pragma once

#include <cstdint>

namespace alibi::test {

#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define ALIBI_THREAD_SANITIZER 1
#endif
#endif
#if defined(ALIBI_THREAD_SANITIZER) || defined(__SANITIZE_THREAD__)
inline constexpr bool kLimitsAllocations = false;  // that sanitizer defines operator new, and the linker takes only one
#else
inline constexpr bool kLimitsAllocations = true;
#endif

/// While it lives, operator new of this thread works `allowed` times and then throws std::bad_alloc.
class LimitedAllocations {
 public:
  explicit LimitedAllocations(int64_t allowed);
  ~LimitedAllocations();
  LimitedAllocations(const LimitedAllocations&) = delete;
  LimitedAllocations& operator=(const LimitedAllocations&) = delete;
};

}  // namespace alibi::test
