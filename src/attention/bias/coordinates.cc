#include "attention/bias/coordinates.h"

#include <algorithm>
#include <cmath>

namespace alibi::kernels {

void Box::add(const Box& other, int dims) {
  for (int axis = 0; axis < dims; ++axis) {
    const auto i = static_cast<size_t>(axis);
    low[i] = std::min(low[i], other.low[i]);
    high[i] = std::max(high[i], other.high[i]);
  }
}

double min_distance(const Box& a, const Box& b, int dims, bool manhattan) {
  double sum = 0;
  for (int axis = 0; axis < dims; ++axis) {
    const auto i = static_cast<size_t>(axis);
    const double gap = std::max({0.0, static_cast<double>(a.low[i]) - static_cast<double>(b.high[i]),
                                 static_cast<double>(b.low[i]) - static_cast<double>(a.high[i])});
    sum += manhattan ? gap : gap * gap;
  }
  const double exact = manhattan ? sum : std::sqrt(sum);
  // The kernels flush squares of differences below 2^-63 to zero.
  return std::max(0.0, exact * (1 - 0x1p-19) - 0x1p-61);
}

double CoordinateBias::beyond(const Box* queries, int64_t key_block) const {
  const Box* const keys = points->keys.box(key_block);
  if (queries == nullptr || keys == nullptr || slope == 0) return 0;
  return -slope * min_distance(*queries, *keys, points->keys.dims, points->manhattan);
}

}  // namespace alibi::kernels
