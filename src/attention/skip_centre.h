// The common part of keys, which the skip rule takes off them: what it bounds by norms is smaller without.
#pragma once

#include <cstdint>

namespace alibi::kernels {

/// How many rows a centre is made of.
inline constexpr int64_t centre_rows = 64;

/// centre[size] = about the mean of some rows, [rows][size], size a multiple of 8. The rule holds for any centre. This
/// one is robust: rows longer than most count as long as these, those with infinity or NaN not at all, and the mean is
/// drawn towards zero by what chance alone would make of it: to zero itself where it is not clearly more than that.
void make_centre(const float* rows, int64_t count, int64_t size, float* centre);

/// The median of the norms of rows; 0 if there are none, or it is not finite.
float median_norm(const float* rows, int64_t count, int64_t size);

}  // namespace alibi::kernels
