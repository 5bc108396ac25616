// Whether bfloat16 products are faster than float32 products on this CPU. CPUs with AVX512-BF16 differ: on some its
// instruction does twice the work of a float32 one in the same time, on others it takes four times as long.
#pragma once

#include <optional>
#include <string>

namespace alibi::core {

/// bfloat16 is used only where its products are at least this many times as fast.
inline constexpr double worthwhile_speedup = 1.2;

/// The rate of bfloat16 products divided by that of float32 products. A CPU with AVX512-BF16 is timed for about two
/// milliseconds on the first call, and the result holds for the whole process. Nothing on other CPUs, and on CPUs with
/// AMX, whose tiles need no timing.
std::optional<double> bf16_speedup();

/// Whether the instruction set in use has bfloat16 products that are worth using.
bool prefers_bf16();
/// The reason for prefers_bf16(), as a clause.
std::string why_prefers_bf16();

/// For tests: replaces the measured speedup; without a value, the next use measures again.
void set_bf16_speedup(std::optional<double> speedup);

}  // namespace alibi::core
