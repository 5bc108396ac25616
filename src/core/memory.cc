#include "core/memory.h"

#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <new>
#include <string>
#include <vector>

#include "alibi/runtime.h"
#include "core/check.h"
#include "core/system.h"

namespace alibi {
namespace {

std::atomic<int64_t> alive{0};
std::atomic<int64_t> peak{0};

/// `address` is the address from malloc.
struct Block {
  void* base = nullptr;
  size_t size = 0;
};

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define ALIBI_WATCHED_MEMORY 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(memory_sanitizer) || __has_feature(thread_sanitizer)
#define ALIBI_WATCHED_MEMORY 1
#endif
#endif

/// Large blocks that were freed, kept while a KeepMemory exists.
class Kept {
 public:
  void enter() {
    const std::lock_guard lock(mutex_);
    if (keepers_++ == 0) most_ = static_cast<size_t>(alive.load());
  }

  void leave() {
    const std::lock_guard lock(mutex_);
    if (--keepers_ == 0) drop_until(0);
  }

  /// Returns a kept block of this size or up to twice as large. If there is none, frees blocks to make room for a new
  /// one and returns null.
  Block take(size_t size) {
    if (size < least || keepers_.load() == 0) return {};
    const std::lock_guard lock(mutex_);
    auto best = blocks_.end();
    for (auto block = blocks_.begin(); block != blocks_.end(); ++block) {
      if (block->size < size || block->size / 2 > size) continue;
      if (best == blocks_.end() || block->size < best->size) best = block;
    }
    const size_t used = static_cast<size_t>(alive.load()) + size;
    most_ = std::max(most_, used);
    if (best == blocks_.end()) {
      drop_until(most_ - used);
      return {};
    }
    const Block found = *best;
    blocks_.erase(best);
    bytes_.fetch_sub(found.size);
    return found;
  }

  /// Returns false if the block must be freed.
  bool put(Block block) {
#ifdef ALIBI_WATCHED_MEMORY  // sanitizers must see that freed memory is freed
    return false;
#endif
    if (block.size < least || keepers_.load() == 0) return false;
    const std::lock_guard lock(mutex_);
    if (keepers_.load() == 0) return false;
    try {
      blocks_.push_back(block);
    } catch (const std::bad_alloc&) {
      return false;
    }
    bytes_.fetch_add(block.size);
    return true;
  }

  /// Frees the oldest blocks until at most `bytes` bytes are kept.
  void shrink(size_t bytes) {
    const std::lock_guard lock(mutex_);
    drop_until(bytes);
  }

  size_t bytes() const { return bytes_.load(); }

  std::mutex& mutex() { return mutex_; }

 private:
  static constexpr size_t least = size_t{1} << 17;  // malloc has its own lists of smaller blocks

  void drop_until(size_t bytes) {
    size_t count = 0;
    while (bytes_.load() > bytes) {
      std::free(blocks_[count].base);
      bytes_.fetch_sub(blocks_[count++].size);
    }
    blocks_.erase(blocks_.begin(), blocks_.begin() + static_cast<std::ptrdiff_t>(count));
  }

  std::mutex mutex_;
  std::atomic<int> keepers_{0};
  size_t most_ = 0;  // peak of allocated bytes since the first KeepMemory
  std::vector<Block> blocks_;
  std::atomic<size_t> bytes_{0};
};

/// Never destroyed, because tensors may outlive main(). Locked during fork().
Kept& kept() {
  static Kept* const instance = [] {
    static auto* const made = new Kept;
    ::pthread_atfork([] { made->mutex().lock(); }, [] { made->mutex().unlock(); }, [] { made->mutex().unlock(); });
    return made;
  }();
  return *instance;
}

/// Uses malloc, or calloc for zeros. The kernel's new pages are already zero, and untouched pages cost nothing.
void* from_system(size_t size, bool zeros) { return zeros ? std::calloc(size, 1) : std::malloc(size); }

}  // namespace

void core::count_bytes(int64_t bytes) {
  const int64_t now = alive.fetch_add(bytes) + bytes;
  int64_t seen = peak.load();
  while (now > seen && !peak.compare_exchange_weak(seen, now)) {
  }
}

std::shared_ptr<void> core::allocate(size_t bytes, bool zeros) {
  constexpr size_t alignment = 64;
  constexpr size_t most = size_t{1} << 62;
  check(bytes <= most, "[tensor] {} bytes are more than memory can address", bytes);
  const size_t padded = bytes == 0 ? alignment : (bytes + alignment - 1) / alignment * alignment;
  Block block = kept().take(padded + alignment);
  const bool used_before = block.base != nullptr;
  if (!used_before) {
    block = {from_system(padded + alignment, zeros), padded + alignment};
    if (block.base == nullptr) {
      kept().shrink(0);
      block.base = from_system(block.size, zeros);
    }
  }
  check(block.base != nullptr, "[tensor] out of memory: cannot allocate {} bytes, {} bytes of tensors are allocated",
        bytes, alive.load());
  void* data = block.base;
  size_t space = block.size;
  data = std::align(alignment, padded, data, space);
  if (!used_before) core::system::ask_for_huge_pages(data, padded);
  if (used_before && zeros) std::memset(data, 0, padded);
  core::count_bytes(static_cast<int64_t>(padded));
  return {data, [block, padded](void*) {
            core::count_bytes(-static_cast<int64_t>(padded));
            if (!kept().put(block)) std::free(block.base);
          }};
}

core::KeepMemory::KeepMemory() { kept().enter(); }
core::KeepMemory::~KeepMemory() { kept().leave(); }

size_t core::kept_bytes() { return kept().bytes(); }

bool core::has_memory(size_t bytes) { return system::has_memory(bytes); }

void core::require_memory(const char* operation, size_t bytes) {
  check(core::has_memory(bytes),
        "[{}] out of memory: {} bytes of tensors are allocated, and the system cannot provide {} more bytes", operation,
        alive.load(), bytes);
}

int64_t tensor_bytes() { return alive.load(); }
int64_t peak_tensor_bytes() { return peak.load(); }
void reset_peak_tensor_bytes() { peak.store(alive.load()); }

int64_t peak_resident_bytes() { return core::system::peak_resident_bytes(); }
bool reset_peak_resident_bytes() { return core::system::reset_peak_resident_bytes(); }

}  // namespace alibi
