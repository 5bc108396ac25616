// The skip rule: an upper bound of the weight of keys that a row has not visited, which is known before they are read.
// docs/explanation/skip-rule.md has the derivation, and what leaving them out can change. Every kernel of the CPU,
// decoding, eviction and the ranges of keys that are loaded use this bound. Logarithms and scores are to base 2.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <numbers>

#include "attention/skip/norms.h"

namespace alibi::kernels {

/// What a kernel adds to the bound for rounding: the list of all roundings on the CPU. What does not grow with the
/// numbers and is the same for all is in skip_budget().
struct Roundings {
  double of_all = 0;     ///< times the magnitude of all terms
  double of_scores = 0;  ///< times that of the scores
  double of_top = 0;     ///< times that of the largest visited score
  double fixed = 0;
  double flushed = 0;  ///< added to scores, for products that are flushed to zero because they are denormal
  float softcap = 0;   ///< as Problem::softcap, to base 2; 0: none

  /// The float32 kernels: a dot product has head_dim roundings; tanh has a relative error of 2^-20, in a score and in
  /// its bound.
  static Roundings of_vector(const Problem& problem) {
    Roundings r = capped(problem);
    r.of_all = 0x1p-20 + static_cast<double>(problem.head_dim) * 0x1p-23 + (problem.softcap > 0 ? 0x1p-19 : 0.0);
    r.flushed = static_cast<double>(std::abs(problem.scale) * std::numbers::log2e_v<float> * 0x1p-100f *
                                    (static_cast<float>(problem.head_dim) * 0x1p-25f));
    return r;
  }
  /// The bfloat16 kernel. Rounding of weights to bfloat16 may change the ratio of visited to skipped weights by
  /// log2((1 + 2^-8) / (1 - 2^-8)) = 0.0113. Sums of weights are rounded with 256 weights per addition.
  static Roundings of_amx(int64_t keys) {
    Roundings r;
    r.of_all = 0x1p-20;
    r.of_scores = r.of_top = 0x1p-12 - 0x1p-20;  // 2^-12 in all
    r.fixed = 0x1p-6 + static_cast<double>(keys) * 0x1p-31;
    return r;
  }
  /// More than both: what a kernel will need at most.
  static Roundings of_any_kernel(const Problem& problem, int64_t keys) {
    Roundings r = capped(problem);
    r.of_all = 0x1p-10;
    r.fixed = 0.125 + static_cast<double>(keys) * 0x1p-30;
    return r;
  }
  /// Decoding decides in float64, for scores in float32 of `numbers` products. The biases of a block of keys are
  /// rounded like the scores that they are added to; `in_block` is the largest difference of two of them.
  static Roundings of_decoding(const ScoreScale& scale, int64_t numbers, double in_block) {
    Roundings r;
    r.softcap = scale.softcap * std::numbers::log2e_v<float>;
    const auto n = static_cast<double>(numbers);
    r.of_scores = (n + 2) * 0x1p-23 + 0x1p-20 + (scale.softcap > 0 ? 0x1p-20 : 0.0);
    r.flushed = std::abs(static_cast<double>(scale.scale)) * std::numbers::log2e * n * 0x1p-125;
    r.fixed = 0x1p-20 * in_block;
    return r;
  }
  /// Keys of a long text that are not loaded: lowers a log-sum-exp for scores, norms and itself, which are float32.
  static double lowered(double log_sum) { return log_sum - (0.01 + 0x1p-20 * std::abs(log_sum)); }
  /// Evicted keys: scores and sums of gates of any kernel and a log-sum-exp in float32, and weights that a kernel
  /// rounded to bfloat16.
  static Roundings of_evicted(const Problem& problem) {
    Roundings r = capped(problem);
    r.of_all = 0x1p-20 + (problem.softcap > 0 ? 0x1p-20 : 0.0) + static_cast<double>(problem.head_dim) * 0x1p-23;
    if (problem.decays != nullptr) r.fixed = 0x1p-16;
    if (problem.dtype != DType::bfloat16) return r;
    r.of_all += 0x1p-10;
    r.fixed += 0x1p-6 * std::numbers::log2e;
    return r;
  }

 private:
  static Roundings capped(const Problem& problem) {
    Roundings r;
    r.softcap = problem.softcap * std::numbers::log2e_v<float>;
    return r;
  }
};

/// What the bound knows of a row.
template <class Number>
struct SkipRow {
  Number norm;     ///< an upper bound of |q|
  Number product;  ///< score of the centre of the keys
  Number share;    ///< position of |q| on the chord
  Number top;      ///< the largest visited score
};

/// What it knows of keys that are not visited. A score of a key is at most score_per_norm |q|, and at most
/// radius_per_norm |q| more than that of the centre.
struct RemainingKeys {
  double score_per_norm = 0, radius_per_norm = 0;
  /// The logarithm of the weight that they would have with scores of 0, less their largest bias.
  double biases = 0;
  /// The logarithm of the sum over the keys of 2^(radius_per_norm |q|), each with its own radius and bias, less the
  /// largest bias: low + share * rise. Without it, every key counts with the largest radius.
  bool summed = false;
  double low = 0, rise = 0;
};

#include "attention/skip/bound-inl.h"

/// float64, for decisions that are rare.
struct DoubleMath {
  double set(double x) const { return x; }
  double add(double a, double b) const { return a + b; }
  double sub(double a, double b) const { return a - b; }
  double mul_add(double a, double b, double c) const { return a * b + c; }
  double abs(double a) const { return std::abs(a); }
  /// The second one if the other is NaN.
  double min(double a, double b) const { return a < b ? a : b; }
  double max(double a, double b) const { return a > b ? a : b; }
  /// A score that is not finite stays so.
  double cap(double x, double c, double more) const { return (std::isfinite(x) ? c * std::tanh(x / c) : x) + more; }
};

/// log2 of an upper bound of the weight over 2^top of a key at `distance` or beyond, of which only bounds of norm and
/// radius are known. Keys that follow each other weigh at most weight_of_keys() times as much.
inline double log2_weight_of_key(const SkipRow<double>& row, float norm, float radius, const Bias& bias, Side side,
                                 int64_t distance, const Roundings& roundings) {
  const RemainingKeys key{.score_per_norm = static_cast<double>(norm), .radius_per_norm = static_cast<double>(radius)};
  return SkipBound::log2_weight(DoubleMath(), row, key, bias.beyond(side, distance) * std::numbers::log2e, roundings);
}

}  // namespace alibi::kernels
