// Puts the tokens of a sequence in the order of a space-filling curve. Neighbours on the curve are near in space, so
// blocks are compact.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "attention/bias/coordinates.h"

namespace alibi::kernels {

/// Leading tokens come first. points is [tokens][dims].
TokenOrder make_order(const std::vector<float>& points, int dims, int64_t leading, int64_t block_rows);

/// Place on the Hilbert curve of a cell with coordinates of `bits` bits (J. Skilling, Programming the Hilbert curve,
/// 2004). dims * bits is at most 62.
uint64_t hilbert_index(std::array<uint64_t, max_dims> cell, int dims, int bits);

}  // namespace alibi::kernels
