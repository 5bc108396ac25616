// Counter-based random numbers. A value is a function of (seed, stream, counter), so resuming needs no saved state, and
// the order of calls does not matter. Philox4x32-10 (Salmon et al., "Parallel Random Numbers: As Easy as 1, 2, 3", SC
// 2011).
#pragma once

#include <array>
#include <cmath>
#include <cstdint>
#include <numbers>

namespace alibi::core {

/// Mixes another index into a stream identifier: stream(seed, step, layer, ...), with splitmix64's finalizer.
constexpr uint64_t mix(uint64_t a, uint64_t b) {
  uint64_t x = a + 0x9E3779B97F4A7C15ull * (b + 1);
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9ull;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBull;
  return x ^ (x >> 31);
}
template <class... Rest>
constexpr uint64_t mix(uint64_t a, uint64_t b, uint64_t c, Rest... rest) {
  return mix(mix(a, b), c, rest...);
}

class Random {
 public:
  constexpr explicit Random(uint64_t seed, uint64_t stream = 0) : key_(seed), stream_(stream) {}

  /// The seed, for kernels that compute the same numbers in vectors.
  constexpr uint64_t seed() const { return key_; }
  constexpr uint64_t stream() const { return stream_; }

  /// Four independent uniform 32-bit words per counter.
  constexpr std::array<uint32_t, 4> block(uint64_t counter) const {
    uint32_t c0 = static_cast<uint32_t>(counter), c1 = static_cast<uint32_t>(counter >> 32);
    uint32_t c2 = static_cast<uint32_t>(stream_), c3 = static_cast<uint32_t>(stream_ >> 32);
    uint32_t k0 = static_cast<uint32_t>(key_), k1 = static_cast<uint32_t>(key_ >> 32);
    for (int round = 0; round < 10; ++round) {
      const uint64_t p0 = uint64_t{0xD2511F53u} * c0;
      const uint64_t p1 = uint64_t{0xCD9E8D57u} * c2;
      c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ k0;
      c1 = static_cast<uint32_t>(p1);
      c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ k1;
      c3 = static_cast<uint32_t>(p0);
      k0 += 0x9E3779B9u;
      k1 += 0xBB67AE85u;
    }
    return {c0, c1, c2, c3};
  }

  /// Word i of the stream.
  constexpr uint32_t bits(uint64_t i) const { return block(i / 4)[i % 4]; }
  /// Value i in [0, 1), 24 bits.
  float uniform(uint64_t i) const { return static_cast<float>(bits(i) >> 8) * 0x1p-24f; }
  /// Value i of a standard normal distribution (Box-Muller).
  float normal(uint64_t i) const {
    const auto b = block(i / 2);
    const double u = (static_cast<double>(b[2 * (i % 2)]) + 0.5) * 0x1p-32;
    const double v = (static_cast<double>(b[2 * (i % 2) + 1]) + 0.5) * 0x1p-32;
    return static_cast<float>(std::sqrt(-2 * std::log(u)) * std::cos(2 * std::numbers::pi * v));
  }
  /// Integer i in [0, n), n > 0, with negligible bias (the high half of a 64 x 64-bit product).
  uint64_t below(uint64_t i, uint64_t n) const {
    const auto b = block(i);
    const uint64_t word = (uint64_t{b[0]} << 32) | b[1];
    const uint64_t low = (word & 0xffffffffu) * (n & 0xffffffffu);
    const uint64_t mid = (word >> 32) * (n & 0xffffffffu) + (low >> 32);
    const uint64_t mid2 = (word & 0xffffffffu) * (n >> 32) + (mid & 0xffffffffu);
    return (word >> 32) * (n >> 32) + (mid >> 32) + (mid2 >> 32);
  }

 private:
  uint64_t key_;
  uint64_t stream_;
};

}  // namespace alibi::core
