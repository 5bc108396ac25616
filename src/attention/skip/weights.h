// Bounds of the weight of all keys before a key block, or from it on, for a query of given length. The skip rule
// compares this remainder with its budget (docs/explanation/skip-rule.md). With the centre c of the keys and a query q,
//
//     s q k' = s q c' + s q (k - c)'  <=  s q c' + |s| |q| |k - c|
//
// so the remainder is exp(s q c') times a function of x = |s| |q| that is the same for all queries: the sum over the
// keys of exp(x |k - c| + bias), where biases, with gates or without, count from the nearest of them. Its logarithm is
// convex in x, so the chord between two values of x is an upper bound. The logarithm is stored for some values of x.
// Beyond the largest of them it grows no faster than the largest |k - c|. All logarithms are to base 2.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <functional>
#include <numbers>
#include <vector>

#include "attention/skip/norms.h"

namespace alibi::kernels {

/// A sample of the rows of a sequence. It is smaller for short sequences, whose attention takes little time.
struct Sample {
  explicit Sample(int64_t rows);
  int64_t count = 0, step = 1;  ///< rows 0, step, 2 * step, ...
};

/// The two stored values of x that enclose the queries of a block.
struct Levels {
  int low = 0, high = 0;
  float from = 0;    ///< the lower value
  float width = 0;   ///< difference to the upper value, or to the longest query if that is larger
  float beyond = 0;  ///< by how much the longest query is larger

  /// Position of x in [0, 1], rounded up.
  float share(float x) const { return width > 0 ? (x - from) / width * (1 + 0x1p-20f) : 0; }
};

/// The logarithm of the remainder for queries on the chord: low + share * rise.
struct Chord {
  float low = 0, rise = 0;
};

class WeightBounds {
 public:
  static constexpr int levels = 8;
  using Values = std::array<float, levels>;

  /// One query head of one sequence.
  struct Head {
    const float* centre = nullptr;  ///< [size]
    float centre_norm = 0;          ///< 0 if the centre is zero
    Values x = {};                  ///< rising, starts at 0
    const Values* before =
        nullptr;  ///< [blocks + 1]: for the keys before a block; distances are counted from the last of them. With
                  ///< coordinates, for the keys of the block before a block only, without their biases
    const Values* from =
        nullptr;  ///< [blocks + 1]: for the keys from a block on; distances are counted from the first of them
    const float *radius_before = nullptr, *radius_from = nullptr;  ///< [blocks + 1]: upper bounds of |k - c|
    const float *norm_before = nullptr, *norm_from = nullptr;      ///< [blocks + 1]: upper bounds of |k|

    /// The levels for queries whose x is in [least, most].
    Levels levels_of(float least, float most) const;
    Chord chord_before(const Levels& at, int64_t block) const { return chord(at, before[block], radius_before[block]); }
    Chord chord_from(const Levels& at, int64_t block) const { return chord(at, from[block], radius_from[block]); }

   private:
    static Chord chord(const Levels& at, const Values& values, float radius) {
      const float low = values[static_cast<size_t>(at.low)];
      const float beyond = at.beyond == 0 ? 0 : at.beyond * radius;
      return {low, values[static_cast<size_t>(at.high)] + beyond - low};
    }
  };

  /// Loads a sample of the rows of a head of a sequence, as load_rows() does.
  using LoadSample =
      std::function<void(size_t sequence, BlockIndex::Of of, const Sample& sample, int64_t head, float* rows)>;
  /// Computes centres and typical lengths from samples of keys and queries, which are those of the problem by default.
  /// The caller then calls measure_keys() for every block of every key/value head, and then accumulate().
  WeightBounds(const Problem& problem, int64_t block_rows, const LoadSample& load = {});
  void accumulate();
  /// Calls visit(float&) for each number that measure_keys() computed for a block, until accumulate().
  template <class Visit>
  void each_of_block(int64_t block, const Visit& visit) {
    for (size_t s = 0; s < blocks().sequences(); ++s) {
      for (int64_t kv_head = 0; kv_head < problem_.kv_heads; ++kv_head) {
        float radius = radii_.of_block(s, kv_head, block), norm = norms_.of_block(s, kv_head, block);
        visit(radius);
        visit(norm);
        set_norms(s, kv_head, block, radius, norm);
      }
      for (int64_t head = 0; head < problem_.heads; ++head) {
        for (float& value : block_before(s, head, block)) visit(value);
        if (problem_.causal) continue;
        for (float& value : block_from(s, head, block)) visit(value);
      }
    }
  }

  Head head(size_t sequence, int64_t head) const;
  const BlockIndex& blocks() const { return radii_.blocks(); }
  int64_t block_rows() const { return block_rows_; }
  int64_t size() const { return size_; }

  /// Used by measure_keys(). Different blocks may be measured at the same time.
  void set_norms(size_t sequence, int64_t kv_head, int64_t block, float radius, float norm) {
    radii_.set(sequence, kv_head, block, radius);
    norms_.set(sequence, kv_head, block, norm);
  }
  Values& block_before(size_t sequence, int64_t head, int64_t block) { return before_[at(sequence, head, block + 1)]; }
  Values& block_from(size_t sequence, int64_t head, int64_t block) { return from_[at(sequence, head, block)]; }

 private:
  size_t at(size_t sequence, int64_t head, int64_t block) const {
    return base_[sequence] + static_cast<size_t>(head * (blocks().blocks(sequence) + 1) + block);
  }
  size_t number(size_t sequence, int64_t head, int64_t heads) const {
    return sequence * static_cast<size_t>(heads) + static_cast<size_t>(head);
  }

  const Problem& problem_;
  int64_t block_rows_;
  int64_t size_;                     // size of a centre: head_dim, padded with zeros to whole vectors
  KeyNorms radii_, norms_;           // upper bounds of |k - c| and |k|
  std::vector<float> centres_;       // [sequences][kv_heads][size]
  std::vector<float> centre_norms_;  // [sequences][kv_heads]
  std::vector<float> lengths_;       // [sequences][heads]: typical x
  std::vector<size_t> base_;         // first index of each sequence in the arrays below
  std::vector<Values> before_, from_;
};

/// A float that is at least x and exceeds it by at most one rounding.
inline float above(double x) { return static_cast<float>(x + 0x1p-22 * std::abs(x)); }

/// The bound for a range of keys that grows by blocks, counted from its last key.
class WeightSum {
 public:
  WeightSum();
  /// Adds keys whose bound is `block`. The biases of all earlier keys fall by `fall` until their last one.
  void add(const WeightBounds::Values& block, double fall);
  WeightBounds::Values values() const;

 private:
  std::array<double, WeightBounds::levels> sums_;
};

/// The least fall of a bias from one key to the next, times log2(e).
inline double fall_in_log2(const Bias& bias, Side side) {
  return std::min(bias.fall(side, 1) * std::numbers::log2e, 1e30);
}
/// HeadDecay::fall() times log2(e).
inline double gates_in_log2(const HeadDecay& decay, int64_t key, int64_t to) {
  return std::min(decay.fall(key, to) * std::numbers::log2e, 1e30);
}
/// A slope times log2(e), or 0 in a closed direction, whose keys are not seen.
inline double slope_in_log2(float slope) { return fall_in_log2(LinearBias(slope, slope, true), Side::before); }

/// Adds the keys of one block to the bounds (vector/measure.cc).
void measure_keys(const Problem& problem, size_t sequence, int64_t kv_head, int64_t block, WeightBounds& bounds);
/// rows[i] = query or key i * step of a head of a sequence for i in [0, count), as float32 with `size` values each.
void load_rows(const Problem& problem, const Sequence& sequence, BlockIndex::Of of, int64_t step, int64_t count,
               int64_t head, float* rows, int64_t size);
/// products[i] = scale * log2(e) * q_i c' of the queries [row, row + count) of a sequence.
void centre_products(const Problem& problem, const Sequence& sequence, int64_t head, int64_t row, int64_t count,
                     const float* centre, int64_t size, float* products);

}  // namespace alibi::kernels
