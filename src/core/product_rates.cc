#include "core/product_rates.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <limits>

#include "alibi/runtime.h"
#include "core/clock.h"

#if defined(__x86_64__) && !defined(ALIBI_EMULATE_AMX)
#define ALIBI_TIMES_PRODUCTS
// g++ 12 warns about undefined operands in its own header (GCC bug 105593).
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wuninitialized"
#pragma GCC diagnostic ignored "-Wmaybe-uninitialized"
#endif
#include <immintrin.h>
#if defined(__GNUC__) && !defined(__clang__)
#pragma GCC diagnostic pop
#endif
#endif

namespace alibi::core {
namespace {

/// NaN until it has been measured.
std::atomic<double> speedup{std::numeric_limits<double>::quiet_NaN()};

#if defined(ALIBI_TIMES_PRODUCTS)

/// The operands of a product [8, depth] [depth, 32] in words of 32 bits: a float32 value or two bfloat16 values. They
/// fit the first-level cache.
constexpr int rows = 8, columns = 32, depth = 128, repetitions = 32;
struct Operands {
  alignas(64) uint32_t a[depth][rows] = {};
  alignas(64) uint32_t b[depth][columns] = {};
  alignas(64) float sums[rows][columns] = {};
};

template <bool is_bf16>
__attribute__((target("avx512f,avx512bw,avx512vl,avx512dq,avx512bf16"), noinline)) void multiply(Operands& operands) {
  for (int again = 0; again < repetitions; ++again) {
    __m512 sum[rows][2];
    for (int r = 0; r < rows; ++r) {
      for (int half = 0; half < 2; ++half) sum[r][half] = _mm512_load_ps(operands.sums[r] + 16 * half);
    }
    for (int k = 0; k < depth; ++k) {
      const __m512i right[2] = {_mm512_load_si512(operands.b[k]), _mm512_load_si512(operands.b[k] + 16)};
      for (int r = 0; r < rows; ++r) {
        const __m512i left = _mm512_set1_epi32(static_cast<int>(operands.a[k][r]));
        for (int half = 0; half < 2; ++half) {
          if constexpr (is_bf16) {
            sum[r][half] = _mm512_dpbf16_ps(sum[r][half], (__m512bh)left, (__m512bh)right[half]);
          } else {
            sum[r][half] = _mm512_fmadd_ps(_mm512_castsi512_ps(left), _mm512_castsi512_ps(right[half]), sum[r][half]);
          }
        }
      }
    }
    for (int r = 0; r < rows; ++r) {
      for (int half = 0; half < 2; ++half) _mm512_store_ps(operands.sums[r] + 16 * half, sum[r][half]);
    }
  }
}

/// The two products take turns, and the shortest time of each counts. So an interruption or a change of the clock rate
/// does not decide.
double measure() {
  constexpr int rounds = 24;
  Operands operands;
  double f32 = HUGE_VAL, bf16 = HUGE_VAL;
  const auto time = [&](void (*multiply)(Operands&), double& least) {
    const auto begin = Clock::now();
    multiply(operands);
    least = std::min(least, seconds_since(begin));
  };
  for (int round = 0; round < rounds; ++round) {
    time(multiply<false>, f32);
    time(multiply<true>, bf16);
  }
  return 2 * f32 / bf16;  // a bfloat16 word has two products
}

#else

/// The emulated instructions of tests are used wherever the real ones would be.
double measure() { return 2; }

#endif

}  // namespace

std::optional<double> bf16_speedup() {
  if (isa() != Isa::avx512_bf16) return {};
  double known = speedup.load();
  if (std::isnan(known)) {
    // If several threads measure, all of them use the result of the first.
    const double measured = measure();
    known = speedup.compare_exchange_strong(known, measured) ? measured : known;
  }
  return known;
}

bool prefers_bf16() { return isa() == Isa::amx || bf16_speedup().value_or(0) >= worthwhile_speedup; }

std::string why_prefers_bf16() {
  if (isa() == Isa::amx) return "this CPU has AMX";
  const std::optional<double> measured = bf16_speedup();
  if (!measured) return fmt::format("the instruction set {} has no bfloat16 products", name_of(isa()));
  return fmt::format("bfloat16 products are {:.2f} times as fast as float32 products here, and bf16 is used from {} on",
                     *measured, worthwhile_speedup);
}

void set_bf16_speedup(std::optional<double> value) {
  speedup = value.value_or(std::numeric_limits<double>::quiet_NaN());
}

}  // namespace alibi::core
