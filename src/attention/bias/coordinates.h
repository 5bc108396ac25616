// A bias for each pair of a query and a key: -slope times the distance of their points. The tokens of a sequence have
// an order in which neighbours are near, and each block of this order has a bounding box. So the bias of whole blocks
// has a bound, and far blocks can be skipped.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace alibi::kernels {

inline constexpr int max_dims = 3;

/// The smallest box around some points. Only the first `dims` axes are used.
struct Box {
  std::array<float, max_dims> low = {}, high = {};
  void add(const Box& other, int dims);
};

/// A lower bound of the distance that the kernels compute for any two points of two boxes. It is smaller than the
/// distance of the boxes by the factor that covers the rounding of the kernels (docs/explanation/positions.md). A box
/// that contains another one is never farther away.
double min_distance(const Box& a, const Box& b, int dims, bool manhattan);

/// The tokens of a sequence in the order in which kernels visit them, cut into blocks.
struct TokenOrder {
  int dims = 1;
  int64_t leading = 0;             ///< number of tokens that have no bias; they come first
  int64_t block_rows = 1;          ///< tokens of each block but the last
  int64_t stride = 0;              ///< tokens per axis of `coordinates`, with room for a whole block after the last one
  std::vector<int32_t> rows;       ///< row of each token within its sequence
  std::vector<float> coordinates;  ///< [dims][stride]; 0 for leading tokens
  std::vector<Box> boxes;          ///< of each block

  const float* axis(int axis) const { return coordinates.data() + axis * stride; }
  /// Number of blocks.
  int64_t size() const { return static_cast<int64_t>(boxes.size()); }
  /// The box of a block; null if some of its tokens are leading ones.
  const Box* box(int64_t block) const {
    return block * block_rows < leading ? nullptr : &boxes[static_cast<size_t>(block)];
  }
};

/// The points of the queries and the keys of a sequence.
struct Coordinates {
  TokenOrder queries, keys;
  bool manhattan = false;  ///< the distance is the sum of the differences, not the root of the sum of their squares
};

/// The bias of one head of one sequence. Numbers of tokens and blocks are those of the order.
struct CoordinateBias {
  const Coordinates* points = nullptr;
  double slope = 0;

  /// False where distances are counted.
  explicit operator bool() const { return points != nullptr; }
  /// The largest bias of a block of keys for queries in a box; null for a block with leading queries. The kernels visit
  /// the blocks of keys in the order of this number, so it falls from each to the next.
  double beyond(const Box* queries, int64_t key_block) const;
};

}  // namespace alibi::kernels
