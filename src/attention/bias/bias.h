// The bias of the scores of one head of one sequence. A form of bias by distance (linear.h, table.h) states its formula
// once; the kernels, the skip rule, eviction and decoding know it by this interface only. distance = position of query
// - position of key. Gates (decay.h) are added to it, and coordinates (coordinates.h) replace it.
#pragma once

#include <cstdint>
#include <span>

#include "attention/bias/coordinates.h"
#include "attention/bias/decay.h"

namespace alibi::kernels {

/// Larger than any distance, but small enough to be added to one without overflow.
inline constexpr int64_t unbounded = int64_t{1} << 42;

/// Where keys lie: before or after the query.
enum class Side : uint8_t { before, after };

class Bias {
 public:
  Bias() = default;
  Bias(const Bias&) = default;
  Bias& operator=(const Bias&) = default;
  virtual ~Bias() = default;

  /// The formula, in float64 and in float32.
  virtual double precise_at(int64_t distance) const = 0;
  virtual float at(int64_t distance) const = 0;

  // Tiles. Values are multiplied by log2(e).

  /// Whether the biases of one side are those of another distance plus a constant. Kernels then count them from a
  /// distance `origin`, so that they keep their precision far away, and leave out the constant.
  virtual bool slides() const = 0;
  /// values[i] = the bias of distance first + i, minus that of `origin` if the bias slides, divided by `factor`. The
  /// distances are on the side of the origin, or the origin is 0. They fit 32 bits.
  virtual void tile(int64_t first, int64_t origin, int64_t count, float factor, float* values) const = 0;
  /// Whether the distances from `first` to `last` all have the same bias, with one gradient if the bias does not slide.
  virtual bool is_level(int64_t first, int64_t last) const = 0;
  /// Upper bounds of its largest number, and of what it adds to a score.
  virtual float magnitude() const = 0;
  virtual float rise() const = 0;

  // What the skip rule knows of keys that it has not read.

  /// Whether the farthest keys of a side weigh less than this share of the heaviest if all scores are equal. If not,
  /// the skip rule is not worth its time.
  virtual bool falls(Side side, float share) const = 0;
  /// The largest bias at this distance and beyond.
  virtual double beyond(Side side, int64_t distance) const = 0;
  /// The same of the distances first, first + step, ..., multiplied by log2(e), in the arithmetic of tiles.
  virtual void beyond(Side side, int64_t first, int step, int64_t count, float* values) const = 0;
  /// The least difference of beyond() at two distances that differ by this number of keys.
  virtual double fall(Side side, int64_t keys) const = 0;
  /// An estimate: of `keys` keys with scores of 0, those at this distance and beyond weigh exp(log_weight) in sum.
  virtual double horizon(Side side, double log_weight, int64_t keys) const = 0;

  // The gradient of its parameters.

  virtual int64_t parameters() const = 0;
  /// Adds the gradients of scores at the distances first, first + 1, ... to the sums of the parameters. A bias that
  /// slides may be counted from `nearest`, the distance of the key that is nearest to the row: any number that is the
  /// same for all keys of a row gives the same sum, because the gradients of the row's scores sum to zero. With a sink
  /// they do not, and `nearest` is 0.
  virtual void add_gradient(int64_t first, int64_t nearest, std::span<const double> dscores, double* sums) const = 0;
};

/// The bias of one head of one sequence, and the keys that a query sees.
struct HeadBias {
  const Bias* form = nullptr;
  int64_t least = -unbounded;  ///< range of distances that are seen, from causality, window and closed directions
  int64_t most = unbounded;
  HeadDecay decay = {};             ///< the gates of the keys, whose bias is added; false without gates
  CoordinateBias coordinates = {};  ///< the bias if points are given, instead of `form`; false without them

  bool sees(int64_t distance) const { return least <= distance && distance <= most; }
  const Bias* operator->() const { return form; }
};

}  // namespace alibi::kernels
