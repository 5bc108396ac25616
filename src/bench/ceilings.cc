#include "bench/ceilings.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>

#include "bench/timing.h"
#include "core/parallel.h"
#include "nn/linear.h"

namespace alibi::bench {
namespace {

double flops(int64_t size) {
  return 2 * static_cast<double>(size) * static_cast<double>(size) * static_cast<double>(size);
}

/// Sum of 64-bit words; the compiler makes vectors of it, and memory is slower than they are.
uint64_t sum_of(const uint64_t* words, int64_t count) {
  constexpr int64_t lanes = 16;
  uint64_t sums[lanes] = {};
  for (int64_t i = 0; i + lanes <= count; i += lanes) {
    for (int64_t lane = 0; lane < lanes; ++lane) sums[lane] += words[i + lane];
  }
  uint64_t sum = 0;
  for (const uint64_t value : sums) sum += value;
  return sum;
}

}  // namespace

MatmulCeiling::MatmulCeiling(DType dtype) {
  for (const int64_t size : {1024, 2048, 3072}) {
    for (const DType output : {DType::float32, DType::bfloat16}) {
      if (output == DType::bfloat16 && dtype != DType::bfloat16) continue;
      Tensor a({size, size}, dtype), b({size, size}, dtype), c({size, size}, output);
      a.fill(0.5f);
      b.fill(0.25f);
      const auto product = [&] { nn::matmul(a, false, b, false, c, false); };
      product();
      double seconds = seconds_of(product);
      for (int run = 0; run < 3; ++run) seconds = std::min(seconds, seconds_of(product));
      if (flops(size) / seconds <= best_) continue;
      best_ = flops(size) / seconds;
      a_ = a;
      b_ = b;
      c_ = c;
    }
  }
}

double MatmulCeiling::run() {
  const double rate = flops(size()) / seconds_of([&] { nn::matmul(a_, false, b_, false, c_, false); });
  best_ = std::max(best_, rate);
  return rate;
}

MemoryReader::MemoryReader() {
  const int64_t machine = sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
  const int64_t bytes = std::min<int64_t>(int64_t{1} << 29, machine / 8);
  buffer_ = Tensor::empty({bytes / 4});
  buffer_.fill(1);
  read();
}

void MemoryReader::read() {
  constexpr int64_t grain = 1 << 17;  // words: a MiB
  const auto* words = static_cast<const uint64_t*>(buffer_.raw());
  std::atomic<uint64_t> sum{0};
  const double seconds = seconds_of([&] {
    parallel_ranges(bytes() / 8, grain, [&](int64_t begin, int64_t end) { sum += sum_of(words + begin, end - begin); });
  });
  best_ = std::max(best_, static_cast<double>(bytes()) / seconds);
}

}  // namespace alibi::bench
