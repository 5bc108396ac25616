#include <algorithm>
#include <atomic>

#include "bench/ceilings.h"
#include "bench/timing.h"
#include "core/parallel.h"
#include "core/system.h"

namespace alibi::bench {
namespace {

/// Sum of 64-bit words. The compiler vectorizes it, so memory is the bottleneck.
uint64_t sum_of(const uint64_t* words, int64_t count) {
  constexpr int64_t lanes = 16, cache_line = 8;
  constexpr int64_t ahead = 512;  // prefetch distance; the hardware prefetcher stops at page boundaries
  uint64_t sums[lanes] = {};
  for (int64_t i = 0; i + lanes <= count; i += lanes) {
    __builtin_prefetch(words + i + ahead);
    __builtin_prefetch(words + i + ahead + cache_line);
    for (int64_t lane = 0; lane < lanes; ++lane) sums[lane] += words[i + lane];
  }
  uint64_t sum = 0;
  for (const uint64_t value : sums) sum += value;
  return sum;
}

}  // namespace

MemoryReader::MemoryReader(int64_t bytes) {
  constexpr int64_t unit = 1 << 20;
  const int64_t machine = core::system::physical_memory();
  const int64_t size = std::max(unit, std::min(bytes, machine / 8) / unit * unit);
  buffer_ = Tensor::empty({size / 4});
  buffer_.fill(1);
  read();
}

void MemoryReader::read() {
  constexpr int64_t grain = 1 << 17;  // words, which is 1 MiB
  const auto* words = static_cast<const uint64_t*>(buffer_.raw());
  std::atomic<uint64_t> sum{0};
  const double seconds = seconds_of([&] {
    core::parallel_ranges(bytes() / 8, grain,
                          [&](int64_t begin, int64_t end) { sum += sum_of(words + begin, end - begin); });
  });
  best_ = std::max(best_, static_cast<double>(bytes()) / seconds);
}

}  // namespace alibi::bench
