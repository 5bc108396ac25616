// Scores of a block of queries with a block of keys, in units of log2: scale q k' log2(e) + bias log2(e). A tile is
// stored as [key][query lane], so that each lane is a row of the attention matrix.

#if defined(ALIBI_ATTENTION_SCORES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef ALIBI_ATTENTION_SCORES_INL_H_
#undef ALIBI_ATTENTION_SCORES_INL_H_
#else
#define ALIBI_ATTENTION_SCORES_INL_H_
#endif

#include <cmath>
#include <limits>
#include <numbers>

#include "attention/dropout.h"
#include "attention/vector/coordinates-inl.h"
#include "attention/vector/vector-inl.h"
#include "hwy/contrib/math/math-inl.h"

HWY_BEFORE_NAMESPACE();
namespace alibi::kernels::HWY_NAMESPACE {

/// The biases of a tile. Mostly, bias and visibility depend only on the distance, and a tile has few distances: query
/// lane x and key y of the tile are at distance first + x + (key_rows - 1) - y.
struct TileBiases {
  static constexpr int64_t size = query_rows + key_rows;
  HWY_ALIGN float values[size];  ///< log2 units; -infinity where the key is not seen
  int64_t first = 0;             ///< distance of values[0]
  bool masked = false;           ///< whether some pair of the tile is not seen

  /// `gated`: a pair's bias also has the sum of gates of its row, less that of its key. `paired`: each pair has a bias
  /// of its own. So have query blocks outside the keys' positions, whose biases count from the row's nearest key, heads
  /// with coordinates, and some tiles of heads with gates.
  enum class Form : uint8_t { by_distance, gated, paired };
  Form form = Form::by_distance;
  HWY_ALIGN float row_gates[query_rows];
  HWY_ALIGN float key_gates[key_rows];
  HWY_ALIGN float pairs[key_rows * query_rows];  ///< -infinity where the key is not seen

  /// Index of key y for the lanes from `lane` on.
  static HWY_INLINE int64_t index(int64_t lane, int64_t y) { return lane + (key_rows - 1) - y; }

  HWY_INLINE Float by_distance(int64_t lane, int64_t y) const { return hn::LoadU(Floats(), values + index(lane, y)); }
  HWY_INLINE Float of_pair(int64_t lane, int64_t y) const { return hn::Load(Floats(), pairs + y * query_rows + lane); }
  HWY_INLINE Float with_gates(int64_t lane, int64_t y) const {
    const Floats f;
    return hn::Add(by_distance(lane, y), hn::Sub(hn::Load(f, row_gates + lane), hn::Set(f, key_gates[y])));
  }
  HWY_INLINE Float at(int64_t lane, int64_t y) const {
    if (form == Form::paired) return of_pair(lane, y);
    return form == Form::gated ? with_gates(lane, y) : by_distance(lane, y);
  }
};

/// A row outside the keys' positions has the biases of the row at the nearest key, plus a constant that is left out.
inline void fill_outside(const QueryBlock& block, int64_t key, TileBiases& biases) {
  const auto position = [&](int64_t x) { return std::clamp<int64_t>(block.position + x, 0, block.keys - 1); };
  float line[TileBiases::size];
  block.bias->tile(position(0) - key - (key_rows - 1), 0, TileBiases::size, 1, line);
  for (int64_t y = 0; y < key_rows; ++y) {
    for (int64_t x = 0; x < query_rows; ++x) {
      biases.pairs[y * query_rows + x] = block.bias.sees(block.position + x - key - y)
                                             ? line[TileBiases::index(position(x) - position(0), y)]
                                             : -std::numeric_limits<float>::infinity();
    }
  }
}

/// Adds the gates to the biases: the sum of the gates up to the row, less that up to the key. Both count from one key
/// between the rows and the keys, so that no digits cancel. In a tile on the diagonal there is no such key, and sharp
/// gates are summed for each pair.
inline void add_gates(const QueryBlock& block, int64_t key, TileBiases& biases) {
  constexpr double unit = std::numbers::log2e;
  const Floats f;
  const HeadDecay& decay = block.bias.decay;
  const int64_t last_key = key + key_rows - 1, base = std::min(last_key, block.position);
  decay.sums(base, block.position, query_rows, unit, biases.row_gates);
  decay.sums(base, key, key_rows, unit, biases.key_gates);
  const bool by_pair = last_key > block.position && differences_lose_digits(biases.row_gates, biases.key_gates);
  const bool documents = decay.document(block.position + block.rows - 1) > key;
  biases.form = TileBiases::Form::gated;
  if (!by_pair && !documents && !block.outside) return;
  for (int64_t y = 0; y < key_rows; ++y) {
    HWY_ALIGN float between[query_rows];
    if (by_pair) decay.sums(key + y, block.position, query_rows, unit, between);
    for (int64_t c = 0; c < query_rows; c += lanes) {
      float* const at = biases.pairs + y * query_rows + c;
      const Float gates = by_pair ? hn::Load(f, between + c)
                                  : hn::Sub(hn::Load(f, biases.row_gates + c), hn::Set(f, biases.key_gates[y]));
      hn::Store(hn::Add(block.outside ? hn::Load(f, at) : biases.by_distance(c, y), gates), f, at);
    }
  }
  biases.form = TileBiases::Form::paired;
  if (!documents) return;
  biases.masked = true;
  for (int64_t x = 0; x < block.rows; ++x) {
    const int64_t hidden = std::min(decay.document(block.position + x) - key, key_rows);
    for (int64_t y = 0; y < hidden; ++y) biases.pairs[y * query_rows + x] = -std::numeric_limits<float>::infinity();
  }
}

inline void fill_by_distance(const HeadBias& bias, TileBiases& biases) {
  const Floats f;
  const Ints i;
  bias->tile(biases.first, 0, TileBiases::size, 1, biases.values);
  if (!biases.masked) return;
  const auto least =
      hn::Set(i, static_cast<int32_t>(std::clamp<int64_t>(bias.least - biases.first, -1, TileBiases::size)));
  const auto most =
      hn::Set(i, static_cast<int32_t>(std::clamp<int64_t>(bias.most - biases.first, -1, TileBiases::size)));
  const Float unseen = hn::Set(f, -std::numeric_limits<float>::infinity());
  for (int64_t r = 0; r < TileBiases::size; r += lanes) {
    const auto index = hn::Iota(i, static_cast<int32_t>(r));
    const auto not_seen = hn::Or(hn::Lt(index, least), hn::Gt(index, most));
    const Float value = hn::Load(f, biases.values + r);
    hn::Store(hn::IfThenElse(hn::RebindMask(f, not_seen), unseen, value), f, biases.values + r);
  }
}

/// The biases of the pairs of a head with coordinates.
inline void fill_pairs(const QueryBlock& block, int64_t key, TileBiases& biases) {
  const CoordinateBias& bias = block.bias.coordinates;
  biases.form = TileBiases::Form::paired;
  biases.masked = false;
  fill_distances(*bias.points, block.row, block.rows, key, std::min(key_rows, block.keys - key),
                 static_cast<float>(-bias.slope * std::numbers::log2e), biases.pairs);
}

inline void fill_bias(const QueryBlock& block, int64_t key, TileBiases& biases) {
  const HeadBias& bias = block.bias;
  if (bias.coordinates) return fill_pairs(block, key, biases);
  biases.first = block.position - key - (key_rows - 1);
  biases.form = block.outside ? TileBiases::Form::paired : TileBiases::Form::by_distance;
  biases.masked = biases.first < bias.least || biases.first + TileBiases::size - 2 > bias.most;
  if (block.outside) {
    fill_outside(block, key, biases);
  } else {
    fill_by_distance(bias, biases);
  }
  if (bias.decay) add_gates(block, key, biases);
}

/// The keys of a tile that its lanes see, in whole register tiles. Lane x sees key y if low <= x - y <= high.
struct SeenKeys {
  SeenKeys(const QueryBlock& block, int64_t key, int64_t count, const TileBiases& biases)
      : low(block.bias.least - (block.position - key)),
        high(block.bias.most - (block.position - key)),
        keys(count),
        rows(block.rows),
        narrow(biases.masked) {}
  /// All of them.
  SeenKeys(int64_t lanes_seen, int64_t count)
      : low(-unbounded), high(unbounded), keys(count), rows(lanes_seen), narrow(false) {}

  /// Keys that at least one of the lanes sees.
  Range keys_of(int64_t lane, int64_t width) const {
    const int64_t begin = std::clamp<int64_t>(lane - high, 0, keys) / tile_rows * tile_rows;
    const int64_t end = std::clamp<int64_t>(lane + width - low, begin, keys);
    return {begin, std::min(round_up(end, tile_rows), keys)};
  }
  /// Lanes that see at least one key of a register tile.
  Range lanes_of(int64_t key) const {
    const int64_t begin = std::clamp<int64_t>(key + low, 0, rows);
    return {begin, std::clamp<int64_t>(key + tile_rows + high, begin, rows)};
  }

  int64_t low, high;
  int64_t keys, rows;
  bool narrow;
};

/// The needed parts of a product that has the tile's keys as rows and its lanes as columns.
struct KeysByLanes {
  const SeenKeys& seen;
  int64_t depth;
  bool narrow() const { return seen.narrow; }
  Range rows_of(int64_t lane, int64_t width) const { return seen.keys_of(lane, width); }
  Range depth_of(int64_t, int64_t, int64_t) const { return {0, depth}; }
};
/// The needed parts of a product that has the lanes as columns and the keys as the inner dimension.
struct SumsOfKeys {
  const SeenKeys& seen;
  int64_t rows;
  bool narrow() const { return seen.narrow; }
  Range rows_of(int64_t, int64_t) const { return {0, rows}; }
  Range depth_of(int64_t, int64_t lane, int64_t width) const { return seen.keys_of(lane, width); }
};
/// The needed parts of a product that has the keys as rows and the lanes as the inner dimension.
struct SumsOfLanes {
  const SeenKeys& seen;
  static bool narrow() { return false; }
  Range rows_of(int64_t, int64_t) const { return {0, seen.keys}; }
  Range depth_of(int64_t key, int64_t, int64_t) const { return seen.lanes_of(key); }
};

/// Writes zeros for the keys of a group of lanes that were not computed.
HWY_INLINE void zero_unseen(float* tile, int64_t lane, int64_t width, Range seen, int64_t count) {
  const Floats f;
  const auto zero = [&](int64_t begin, int64_t end) HWY_ATTR {
    for (int64_t y = begin; y < end; ++y) {
      for (int64_t c = lane; c < lane + width; c += lanes) hn::Store(hn::Zero(f), f, tile + y * query_rows + c);
    }
  };
  zero(0, seen.begin);
  zero(seen.end, count);
}

/// How q k' becomes a score. `open`: no key of the tile is masked. `masked`: keys that are not seen score -infinity,
/// even if they contain NaN. `gated` and `paired`: as `masked`, with these biases.
enum class Tail { open, masked, gated, paired };

template <Tail tail>
struct StoreScores {
  float* scores;
  const TileBiases* biases;
  float scale;
  int64_t row0 = 0, column0 = 0;

  HWY_INLINE StoreScores at(int64_t row, int64_t column) const { return {scores, biases, scale, row, column}; }
  HWY_INLINE void operator()(int64_t r, int64_t c, Float product) const {
    const Floats f;
    const int64_t row = row0 + r, column = column0 + c;
    const Float bias = tail == Tail::paired  ? biases->of_pair(column, row)
                       : tail == Tail::gated ? biases->with_gates(column, row)
                                             : biases->by_distance(column, row);
    Float score = hn::MulAdd(product, hn::Set(f, scale), bias);
    if (tail != Tail::open) {
      const Float unseen = hn::Set(f, -std::numeric_limits<float>::infinity());
      score = hn::IfThenElse(hn::Eq(bias, unseen), unseen, score);
    }
    hn::Store(score, f, scores + row * query_rows + column);
  }
};

/// A log-sum-exp in units of log2. Both passes must round it in the same way.
inline float in_log2(float lse) { return lse * std::numbers::log2e_v<float>; }

/// Replaces products q k' by scores with a softcap. `derivatives`, unless null, receives 1 - tanh^2, the derivative of
/// a score by scale q k', and 0 for keys that are not seen.
inline void cap_scores(const Problem& problem, const SeenKeys& seen, const TileBiases& biases, float* scores,
                       float* derivatives) {
  const Floats f;
  const Float factor = hn::Set(f, problem.scale / problem.softcap);
  const Float cap = hn::Set(f, problem.softcap * std::numbers::log2e_v<float>);
  const Float unseen = hn::Set(f, -std::numeric_limits<float>::infinity());
  for_groups(seen.rows, seen.narrow, [&](int64_t n, int64_t width) HWY_ATTR {
    const Range keys = seen.keys_of(n * lanes, width * lanes);
    for (int64_t y = keys.begin; y < keys.end; ++y) {
      for (int64_t c = n * lanes; c < (n + width) * lanes; c += lanes) {
        const int64_t at = y * query_rows + c;
        const Float tanh = hn::Tanh(f, hn::Mul(hn::Load(f, scores + at), factor));
        const Float bias = biases.at(c, y);
        const auto hidden = hn::Eq(bias, unseen);
        const Float score = hn::MulAdd(tanh, cap, bias);
        hn::Store(hn::IfThenElse(hidden, unseen, score), f, scores + at);
        if (derivatives == nullptr) continue;
        hn::Store(hn::IfThenZeroElse(hidden, hn::NegMulAdd(tanh, tanh, hn::Set(f, 1.0f))), f, derivatives + at);
      }
    }
  });
}

/// Computes scores[key][lane] for the keys that are seen. queries is [head_dim][query_rows], keys is
/// [key_rows][stride]. `derivatives` is used only with a softcap (cap_scores).
inline void make_scores(const Problem& problem, const QueryBlock& block, const float* queries, const float* keys,
                        int64_t stride, const SeenKeys& seen, const TileBiases& biases, Prefetcher& prefetcher,
                        float* scores, float* derivatives = nullptr) {
  const float scale = problem.scale * std::numbers::log2e_v<float>;
  const auto product = [&](const auto& finish) HWY_ATTR {
    const KeysByLanes part{seen, problem.head_dim};
    multiply<Left::rows>(keys, stride, queries, query_rows, block.rows, part, prefetcher, finish);
  };
  if (problem.softcap > 0) {
    product(Store{scores, query_rows});
    cap_scores(problem, seen, biases, scores, derivatives);
  } else if (biases.form == TileBiases::Form::paired) {
    product(StoreScores<Tail::paired>{scores, &biases, scale});
  } else if (biases.form == TileBiases::Form::gated) {
    product(StoreScores<Tail::gated>{scores, &biases, scale});
  } else if (biases.masked) {
    product(StoreScores<Tail::masked>{scores, &biases, scale});
  } else {
    product(StoreScores<Tail::open>{scores, &biases, scale});
  }
}

/// The vector form of DropoutMask::bits.
HWY_INLINE auto dropout_bits(const uint32_t* query_draws, uint32_t pair_draw) {
  const Words w;
  auto x = hn::Add(hn::LoadU(w, query_draws), hn::Set(w, pair_draw));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<16>(x)), hn::Set(w, 0x7feb352du));
  x = hn::Mul(hn::Xor(x, hn::ShiftRight<15>(x)), hn::Set(w, 0x846ca68bu));
  return hn::Xor(x, hn::ShiftRight<16>(x));
}

/// True where the weight of the pair's first or second key is dropped.
template <class V>
HWY_INLINE auto dropped_weights(V bits, bool second, uint32_t threshold) {
  const Words w;
  const auto half = second ? hn::ShiftRight<16>(bits) : hn::And(bits, hn::Set(w, 0xffffu));
  return hn::RebindMask(Floats(), hn::Lt(half, hn::Set(w, threshold)));
}

}  // namespace alibi::kernels::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // the include guard
