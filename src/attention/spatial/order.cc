#include "attention/spatial/order.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace alibi::kernels {
namespace {

constexpr int curve_bits = 62;  // of an index

Box box_of(const TokenOrder& order, int64_t begin, int64_t count) {
  Box box;
  for (int axis = 0; axis < order.dims; ++axis) {
    const float* const at = order.axis(axis) + begin;
    const auto [low, high] = std::minmax_element(at, at + count);
    box.low[static_cast<size_t>(axis)] = *low;
    box.high[static_cast<size_t>(axis)] = *high;
  }
  return box;
}

/// Sorts the rows that are not leading along the curve. Rows of one cell keep their order.
void sort_rows(const std::vector<float>& points, int dims, int64_t leading, std::vector<int32_t>& rows) {
  const auto begin = rows.begin() + leading;
  if (begin == rows.end()) return;
  const auto at = [&](int32_t row, int axis) {
    return static_cast<double>(
        points[static_cast<size_t>(row) * static_cast<size_t>(dims) + static_cast<size_t>(axis)]);
  };
  std::array<double, max_dims> low = {};
  double extent = 0;
  for (int axis = 0; axis < dims; ++axis) {
    double least = HUGE_VAL, most = -HUGE_VAL;
    for (auto row = begin; row != rows.end(); ++row) {
      least = std::min(least, at(*row, axis));
      most = std::max(most, at(*row, axis));
    }
    low[static_cast<size_t>(axis)] = least;
    extent = std::max(extent, most - least);
  }
  if (extent == 0) return;
  const int bits = std::min(curve_bits / dims, 52);
  const double cells = std::ldexp(1.0, bits) - 1;
  std::vector<uint64_t> place(rows.size());
  for (auto row = begin; row != rows.end(); ++row) {
    std::array<uint64_t, max_dims> cell = {};
    for (int axis = 0; axis < dims; ++axis) {
      const double share = (at(*row, axis) - low[static_cast<size_t>(axis)]) / extent;
      cell[static_cast<size_t>(axis)] = static_cast<uint64_t>(std::min(share, 1.0) * cells);
    }
    place[static_cast<size_t>(*row)] = hilbert_index(cell, dims, bits);
  }
  std::sort(begin, rows.end(), [&](int32_t a, int32_t b) {
    const uint64_t place_a = place[static_cast<size_t>(a)], place_b = place[static_cast<size_t>(b)];
    return place_a != place_b ? place_a < place_b : a < b;
  });
}

}  // namespace

uint64_t hilbert_index(std::array<uint64_t, max_dims> cell, int dims, int bits) {
  if (dims == 1) return cell[0];
  const auto axes = static_cast<size_t>(dims);
  const uint64_t top = uint64_t{1} << (bits - 1);
  for (uint64_t bit = top; bit > 1; bit >>= 1) {
    const uint64_t below = bit - 1;
    for (size_t axis = 0; axis < axes; ++axis) {
      if ((cell[axis] & bit) != 0) {
        cell[0] ^= below;
      } else {
        const uint64_t swapped = (cell[0] ^ cell[axis]) & below;
        cell[0] ^= swapped;
        cell[axis] ^= swapped;
      }
    }
  }
  for (size_t axis = 1; axis < axes; ++axis) cell[axis] ^= cell[axis - 1];
  uint64_t gray = 0;
  for (uint64_t bit = top; bit > 1; bit >>= 1) {
    if ((cell[axes - 1] & bit) != 0) gray ^= bit - 1;
  }
  uint64_t index = 0;
  for (int bit = bits - 1; bit >= 0; --bit) {
    for (size_t axis = 0; axis < axes; ++axis) index = index << 1 | (((cell[axis] ^ gray) >> bit) & 1);
  }
  return index;
}

TokenOrder make_order(const std::vector<float>& points, int dims, int64_t leading, int64_t block_rows) {
  TokenOrder order;
  const int64_t tokens = static_cast<int64_t>(points.size()) / dims;
  leading = std::min(leading, tokens);
  order.dims = dims;
  order.leading = leading;
  order.block_rows = block_rows;
  order.rows.resize(static_cast<size_t>(tokens));
  std::iota(order.rows.begin(), order.rows.end(), 0);
  sort_rows(points, dims, leading, order.rows);
  order.stride = tokens + block_rows;
  order.coordinates.assign(static_cast<size_t>(dims * order.stride), 0.0f);
  for (int64_t i = leading; i < tokens; ++i) {
    const auto row = static_cast<size_t>(order.rows[static_cast<size_t>(i)]);
    for (int axis = 0; axis < dims; ++axis) {
      order.coordinates[static_cast<size_t>(axis * order.stride + i)] =
          points[row * static_cast<size_t>(dims) + static_cast<size_t>(axis)];
    }
  }
  for (int64_t at = 0; at < tokens; at += block_rows) {
    order.boxes.push_back(box_of(order, at, std::min(block_rows, tokens - at)));
  }
  return order;
}

}  // namespace alibi::kernels
