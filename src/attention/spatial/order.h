// The tokens of a sequence in the order of a space-filling curve, cut into blocks with bounding boxes. Neighbours on
// the curve are near in space, so blocks are compact.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "alibi/attention_positions.h"

namespace alibi::kernels {

inline constexpr int most_dims = 3;

/// The smallest box around some points. Only the first `dims` axes are used.
struct Box {
  std::array<float, most_dims> low = {}, high = {};
  void add(const Box& other, int dims);
};

/// Consecutive tokens of an order.
struct TokenBlock {
  int64_t begin = 0, count = 0;
  Box box;  ///< not used for leading tokens
};

/// Leading tokens come first, in blocks of their own. The others follow in the order of the curve.
struct TokenOrder {
  int dims = 1;
  int64_t leading_blocks = 0;
  int64_t stride = 0;              ///< tokens per axis of `coordinates`, with room for a whole block after the last one
  std::vector<int32_t> rows;       ///< row of each token within its sequence
  std::vector<float> coordinates;  ///< [dims][stride]
  std::vector<TokenBlock> blocks;

  bool is_leading(int64_t block) const { return block < leading_blocks; }
  int64_t size() const { return static_cast<int64_t>(blocks.size()); }
};

/// points is [tokens][dims].
TokenOrder make_order(const std::vector<float>& points, int dims, int64_t leading, int64_t block_rows);

/// Place on the Hilbert curve of a cell with coordinates of `bits` bits (J. Skilling, Programming the Hilbert curve,
/// 2004). dims * bits is at most 62.
uint64_t hilbert_index(std::array<uint64_t, most_dims> cell, int dims, int bits);

/// A lower bound of the distance that the kernels compute for any two points of two boxes. It is smaller than the
/// distance of the boxes by the factor that covers the rounding of the kernels (docs/explanation/positions.md). A box
/// that contains another one is never farther away.
double least_distance(const Box& a, const Box& b, int dims, Distance distance);

}  // namespace alibi::kernels
