// Tiles of the biases of pairs (bias/coordinates.h).

#if defined(ALIBI_ATTENTION_COORDINATES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ALIBI_ATTENTION_COORDINATES_INL_H_
#undef ALIBI_ATTENTION_COORDINATES_INL_H_
#else
#define ALIBI_ATTENTION_COORDINATES_INL_H_
#endif

#include "attention/vector/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace alibi::kernels::HWY_NAMESPACE {

template <int dims, bool manhattan>
void fill_by(const Coordinates& points, int64_t query, int64_t columns, int64_t key, int64_t count, float factor,
             float* tile) {
  const Floats f;
  const Float times = hn::Set(f, factor);
  const float* keys[dims];
  for (int axis = 0; axis < dims; ++axis) keys[axis] = points.keys.axis(axis) + key;
  for (int64_t c = 0; c < columns; c += lanes) {
    Float x[dims];
    for (int axis = 0; axis < dims; ++axis) x[axis] = hn::LoadU(f, points.queries.axis(axis) + query + c);
    for (int64_t y = 0; y < count; ++y) {
      Float sum = hn::Zero(f);
      for (int axis = 0; axis < dims; ++axis) {
        const Float part = hn::Sub(x[axis], hn::Set(f, keys[axis][y]));
        sum = dims == 1 || manhattan ? hn::Add(sum, hn::Abs(part)) : hn::MulAdd(part, part, sum);
      }
      const Float distance = dims == 1 || manhattan ? sum : hn::Sqrt(sum);
      hn::Store(hn::Mul(times, distance), f, tile + y * query_rows + c);
    }
  }
}

/// tile[key][lane] = factor * distance of the key and the query, or 0 if one of them has no bias. Lanes are rounded up
/// to whole vectors and keys to whole register tiles, for which the coordinates have room.
inline void fill_distances(const Coordinates& points, int64_t query, int64_t columns, int64_t key, int64_t count,
                           float factor, float* tile) {
  count = round_up(count, tile_rows);
  if (factor == 0) {
    std::fill_n(tile, count * query_rows, 0.0f);
    return;
  }
  const int dims = points.keys.dims;
  const auto fill = [&](auto by) { by(points, query, columns, key, count, factor, tile); };
  if (dims == 1) {
    fill(fill_by<1, true>);
  } else if (dims == 2) {
    fill(points.manhattan ? fill_by<2, true> : fill_by<2, false>);
  } else {
    fill(points.manhattan ? fill_by<3, true> : fill_by<3, false>);
  }
  const int64_t leading_lanes = std::clamp<int64_t>(points.queries.leading - query, 0, query_rows);
  const int64_t leading_keys = std::clamp<int64_t>(points.keys.leading - key, 0, count);
  if (leading_lanes == 0 && leading_keys == 0) return;
  for (int64_t y = 0; y < count; ++y) {
    std::fill_n(tile + y * query_rows, y < leading_keys ? query_rows : leading_lanes, 0.0f);
  }
}

}  // namespace alibi::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // the include guard
