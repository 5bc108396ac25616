// Tiles of tokens that lie anywhere in their tensors: rows are gathered by index, and biases come from coordinates.

#if defined(ALIBI_ATTENTION_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ALIBI_ATTENTION_TILE_INL_H_
#undef ALIBI_ATTENTION_TILE_INL_H_
#else
#define ALIBI_ATTENTION_TILE_INL_H_
#endif

#include <numbers>

#include "attention/spatial/spatial.h"
#include "attention/vector/scores-inl.h"
#include "attention/vector/vector-inl.h"

HWY_BEFORE_NAMESPACE();
namespace alibi::kernels::HWY_NAMESPACE {

/// Loads the rows first + rows[i] of a head as a float32 block with `stride` floats per row.
inline void gather_rows(const Problem& problem, const TensorView& from, int64_t batch, int64_t first,
                        const int32_t* rows, int64_t count, int64_t head, float* to, int64_t stride) {
  for (int64_t i = 0; i < count; ++i)
    load_block(problem, from, batch, first + rows[i], 1, head, to + i * stride, stride);
}

/// Loads a block of keys or values, followed by zeros up to a whole register tile.
inline void gather_keys(const Problem& problem, const TensorView& from, const Sequence& sequence, const int32_t* rows,
                        int64_t count, int64_t kv_head, float* to, int64_t stride) {
  gather_rows(problem, from, sequence.batch, sequence.key_begin, rows, count, kv_head, to, stride);
  std::fill_n(to + count * stride, (round_up(count, tile_rows) - count) * stride, 0.0f);
}

/// Loads a block of queries in both layouts, as load_queries().
inline void gather_queries(const Problem& problem, const TensorView& from, const Sequence& sequence,
                           const int32_t* tokens, int64_t count, int64_t head, float* rows, int64_t stride,
                           float* transposed) {
  gather_rows(problem, from, sequence.batch, sequence.query_begin, tokens, count, head, rows, stride);
  const int64_t padded = round_up(count, lanes);
  std::fill_n(rows + count * stride, (padded - count) * stride, 0.0f);
  transpose(rows, stride, transposed, query_rows, padded, round_up(problem.head_dim, 4));
}

/// Prefetches the next keys and values, as Prefetcher does for rows at equal steps.
class GatherPrefetcher {
 public:
  void start(const Problem& problem, const Sequence& sequence, const int32_t* rows, int64_t count, int64_t kv_head) {
    const auto size = static_cast<int64_t>(size_of(problem.dtype));
    const auto begin = [&](const TensorView& view) {
      return Stream{
          static_cast<const char*>(view.data) +
              (sequence.batch * view.batch_stride + sequence.key_begin * view.row_stride + kv_head * view.head_stride) *
                  size,
          view.row_stride * size};
    };
    keys_ = begin(problem.k);
    values_ = begin(problem.v);
    bytes_ = problem.head_dim * size;
    next_ = rows;
    end_ = rows + count;
  }

  HWY_INLINE void next_row() {
    if (next_ == end_) return;
    constexpr int64_t line = 64;
    for (int64_t i = 0; i < bytes_; i += line) {
      __builtin_prefetch(keys_.first + *next_ * keys_.step + i, 0, 2);
      __builtin_prefetch(values_.first + *next_ * values_.step + i, 0, 2);
    }
    ++next_;
  }

 private:
  struct Stream {
    const char* first = nullptr;
    int64_t step = 0;
  };
  Stream keys_, values_;
  int64_t bytes_ = 0;
  const int32_t *next_ = nullptr, *end_ = nullptr;
};

/// Coordinates of a block of tokens, [dims][stride].
struct Points {
  const float* at = nullptr;
  int64_t stride = 0;
};

template <int dims, Distance kind>
void fill_by(const Points& queries, const Points& keys, int64_t columns, int64_t count, float factor, float* tile) {
  const Floats f;
  const Float times = hn::Set(f, factor);
  for (int64_t c = 0; c < columns; c += lanes) {
    Float x[dims];
    for (int axis = 0; axis < dims; ++axis) x[axis] = hn::Load(f, queries.at + axis * queries.stride + c);
    for (int64_t y = 0; y < count; ++y) {
      Float sum = hn::Zero(f);
      for (int axis = 0; axis < dims; ++axis) {
        const Float part = hn::Sub(x[axis], hn::Set(f, keys.at[axis * keys.stride + y]));
        if (dims == 1 || kind == Distance::manhattan) {
          sum = hn::Add(sum, hn::Abs(part));
        } else {
          sum = hn::MulAdd(part, part, sum);
        }
      }
      const Float distance = dims == 1 || kind == Distance::manhattan ? sum : hn::Sqrt(sum);
      hn::Store(hn::Mul(times, distance), f, tile + y * query_rows + c);
    }
  }
}

/// tile[key][lane] = factor * distance of the key and the query, or 0 if one of them has no bias. Lanes are rounded up
/// to whole vectors and keys to whole register tiles; Points have room for them.
inline void fill_distances(const SpatialProblem& problem, int dims, const Points* queries, const Points* keys,
                           int64_t columns, int64_t count, float factor, float* tile) {
  const Floats f;
  count = round_up(count, tile_rows);
  if (queries == nullptr || keys == nullptr || factor == 0) {
    for (int64_t y = 0; y < count; ++y) {
      for (int64_t c = 0; c < columns; c += lanes) hn::Store(hn::Zero(f), f, tile + y * query_rows + c);
    }
    return;
  }
  const bool manhattan = problem.distance == Distance::manhattan;
  if (dims == 1) {
    fill_by<1, Distance::manhattan>(*queries, *keys, columns, count, factor, tile);
  } else if (dims == 2 && manhattan) {
    fill_by<2, Distance::manhattan>(*queries, *keys, columns, count, factor, tile);
  } else if (dims == 2) {
    fill_by<2, Distance::euclidean>(*queries, *keys, columns, count, factor, tile);
  } else if (manhattan) {
    fill_by<3, Distance::manhattan>(*queries, *keys, columns, count, factor, tile);
  } else {
    fill_by<3, Distance::euclidean>(*queries, *keys, columns, count, factor, tile);
  }
}

/// score = scale * product + the bias that is already in its place.
struct AddScaled {
  float* scores;
  float scale;
  HWY_INLINE AddScaled at(int64_t row, int64_t column) const { return {scores + row * query_rows + column, scale}; }
  HWY_INLINE void operator()(int64_t row, int64_t column, Float product) const {
    float* const to = scores + row * query_rows + column;
    hn::Store(hn::MulAdd(product, hn::Set(Floats(), scale), hn::Load(Floats(), to)), Floats(), to);
  }
};

/// The query block of a task and its coordinates. Lanes beyond its queries have the coordinates 0.
struct SpatialBlock {
  int64_t head = 0;
  int64_t index = 0;
  const TokenBlock* tokens = nullptr;
  const int32_t* rows = nullptr;
  bool leading = false;
  double slope = 0;  ///< in log2 units
  Points points;
  float* coordinates;  ///< [dims][query_rows]

  void start(const SpatialProblem& problem, size_t sequence, int64_t of_head, int64_t block) {
    const TokenOrder& order = *problem.sequences[sequence].queries;
    head = of_head;
    index = block;
    tokens = &order.blocks[static_cast<size_t>(block)];
    rows = &order.rows[static_cast<size_t>(tokens->begin)];
    leading = order.is_leading(block);
    slope = problem.slope(sequence, head, block);
    for (int axis = 0; axis < order.dims; ++axis) {
      std::fill_n(coordinates + axis * query_rows, query_rows, 0.0f);
      std::copy_n(&order.coordinates[static_cast<size_t>(axis * order.stride + tokens->begin)], tokens->count,
                  coordinates + axis * query_rows);
    }
    points = {coordinates, query_rows};
  }
  int64_t count() const { return tokens->count; }
  const Box* box() const { return leading ? nullptr : &tokens->box; }
};

/// Distances of a query block and a key block, times a factor.
inline void fill_tile(const SpatialProblem& problem, const TokenOrder& keys, const SpatialBlock& queries, int64_t block,
                      float factor, float* tile) {
  const TokenBlock& tokens = keys.blocks[static_cast<size_t>(block)];
  const Points points = {keys.coordinates.data() + tokens.begin, keys.stride};
  fill_distances(problem, keys.dims, queries.leading ? nullptr : &queries.points,
                 keys.is_leading(block) ? nullptr : &points, queries.count(), tokens.count, factor, tile);
}

/// Scores of a tile in units of log2.
inline void make_spatial_scores(const SpatialProblem& problem, const TokenOrder& order, const SpatialBlock& block,
                                int64_t key_block, const float* queries, const float* keys, int64_t stride,
                                const Seen& seen, GatherPrefetcher& prefetcher, float* scores) {
  fill_tile(problem, order, block, key_block, static_cast<float>(-block.slope), scores);
  multiply<Left::rows>(keys, stride, queries, query_rows, block.count(), KeysByLanes{seen, problem.base.head_dim},
                       prefetcher, AddScaled{scores, problem.base.scale * std::numbers::log2e_v<float>});
}

}  // namespace alibi::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // the include guard
