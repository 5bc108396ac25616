#include "core/memory_reserve.h"

#include <atomic>
#include <cstdlib>
#include <new>

namespace alibi::core {
namespace {

constexpr size_t kReserveBytes = size_t{1} << 20;
std::atomic<void*> memory_reserve = nullptr;

[[noreturn]] void free_reserve() {
  std::free(memory_reserve.exchange(nullptr));
  throw std::bad_alloc();
}

}  // namespace

void keep_memory_reserve() {
  std::set_new_handler(free_reserve);
  if (memory_reserve.load() != nullptr) return;
  std::free(memory_reserve.exchange(std::malloc(kReserveBytes)));
}

}  // namespace alibi::core
