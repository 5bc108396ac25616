#include "limited_allocations.h"

#include <cstdlib>
#include <limits>
#include <new>

namespace alibi::test {
namespace {

constexpr int64_t unlimited = std::numeric_limits<int64_t>::max();
thread_local int64_t allocations_left = unlimited;

}  // namespace

LimitedAllocations::LimitedAllocations(int64_t allowed) { allocations_left = allowed; }
LimitedAllocations::~LimitedAllocations() { allocations_left = unlimited; }

}  // namespace alibi::test

#if !defined(ALIBI_THREAD_SANITIZER) && !defined(__SANITIZE_THREAD__)
void* operator new(size_t bytes) {
  int64_t& left = alibi::test::allocations_left;
  if (left == 0) throw std::bad_alloc();
  if (left != alibi::test::unlimited) --left;
  void* const memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

// The sanitizers have a form of their own otherwise, whose memory the functions below could not free.
void* operator new(size_t bytes, const std::nothrow_t&) noexcept {
  try {
    return operator new(bytes);
  } catch (const std::bad_alloc&) {
    return nullptr;
  }
}

void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, const std::nothrow_t&) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
#endif
