#include "core/memory.h"

#if defined(__GLIBC__)
#include <malloc.h>
#endif
#if defined(__linux__)
#include <sys/mman.h>
#endif

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

#include "alibi/runtime.h"
#include "core/check.h"

namespace alibi {
namespace {

std::atomic<int64_t> alive{0};
std::atomic<int64_t> peak{0};

void count(int64_t bytes) {
  const int64_t now = alive.fetch_add(bytes) + bytes;
  int64_t seen = peak.load();
  while (now > seen && !peak.compare_exchange_weak(seen, now)) {
  }
}

/// With pages of 4 KiB, large tensors that are read once in a while (a key/value cache, weights) cost more time in page
/// tables than in memory. Only a hint: it may fail.
void ask_for_huge_pages(void* memory, size_t bytes) {
#if defined(__linux__)
  constexpr size_t huge = size_t{1} << 21;
  const auto begin = (reinterpret_cast<uintptr_t>(memory) + huge - 1) / huge * huge;
  const auto end = (reinterpret_cast<uintptr_t>(memory) + bytes) / huge * huge;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
#else
  static_cast<void>(memory);
  static_cast<void>(bytes);
#endif
}

}  // namespace

std::shared_ptr<void> allocate(size_t bytes, bool zeros) {
  constexpr size_t alignment = 64;
  constexpr size_t most = size_t{1} << 62;
  check(bytes <= most, "[tensor] {} bytes are more than memory can address", bytes);
  const size_t padded = bytes == 0 ? alignment : (bytes + alignment - 1) / alignment * alignment;
  // Large blocks come from calloc: the kernel's fresh pages are zero already, and pages never touched cost nothing.
  void* base = zeros ? std::calloc(padded + alignment, 1) : std::malloc(padded + alignment);
  check(base != nullptr, "[tensor] out of memory: {} bytes asked for, {} bytes of tensors are alive", bytes,
        alive.load());
  void* data = base;
  size_t space = padded + alignment;
  data = std::align(alignment, padded, data, space);
  ask_for_huge_pages(data, padded);
  count(static_cast<int64_t>(padded));
  return {data, [base, padded](void*) {
            std::free(base);
            count(-static_cast<int64_t>(padded));
          }};
}

void require_memory(const char* operation, size_t bytes) {
#if defined(__linux__)
  void* const room = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  check(room != MAP_FAILED, "[{}] out of memory: {} bytes of tensors are alive, and the system gives no {} bytes more",
        operation, alive.load(), bytes);
  ::munmap(room, bytes);
#endif
}

int64_t tensor_bytes() { return alive.load(); }
int64_t peak_tensor_bytes() { return peak.load(); }
void reset_peak_tensor_bytes() { peak.store(alive.load()); }

int64_t peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  std::string key;
  while (status >> key) {
    if (key == "VmHWM:") {
      int64_t kib = 0;
      status >> kib;
      return kib * 1024;
    }
    status.ignore(4096, '\n');
  }
  return 0;
}

bool reset_peak_resident_bytes() {
#if defined(__GLIBC__)
  malloc_trim(0);  // what was freed before must not count in what is measured from here
#endif
  std::ofstream clear("/proc/self/clear_refs");
  clear << "5";  // proc(5): resets the peak resident set size
  clear.flush();
  return static_cast<bool>(clear);
}

}  // namespace alibi
