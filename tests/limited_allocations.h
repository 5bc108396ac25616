// Memory that runs out: operator new of this program, which limited_allocations.cc replaces.
#pragma once

#include <cstdint>

namespace alibi::test {

/// While it lives, operator new of this thread works `allowed` times and then throws std::bad_alloc.
class LimitedAllocations {
 public:
  explicit LimitedAllocations(int64_t allowed);
  ~LimitedAllocations();
  LimitedAllocations(const LimitedAllocations&) = delete;
  LimitedAllocations& operator=(const LimitedAllocations&) = delete;
};

}  // namespace alibi::test
