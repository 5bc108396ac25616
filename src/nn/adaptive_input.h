// Adaptive input (Baevski & Auli 2019), and the vocabulary in bands that it shares with adaptive softmax (Grave et al.
// 2017): bands of falling frequency, with narrower vectors for rarer words.
#pragma once

#include <cstdint>
#include <vector>

#include "alibi/tensor.h"

namespace alibi::nn {

/// Weights, or their gradients. Band b has V_b words with vectors of d_b elements; d_0 is d, the width of the model.
struct AdaptiveWeights {
  /// Band 0: [V_0 + bands - 1, d], with a row for each of its words and then one row for each further band, which
  /// represents the band's words in the softmax. Band b: [V_b, d_b].
  std::vector<Tensor> tables;
  std::vector<Tensor> projections;  ///< [d, d_b]; the projection of band 0 is used only for the input

  int bands() const { return static_cast<int>(tables.size()); }
  int64_t d() const { return tables.front().size(1); }
  int64_t band_size(int band) const;
  int64_t vocab_size() const;
};

/// Throws Error naming the weight whose shape, type or layout does not fit the others.
void check_weights(const char* operation, const AdaptiveWeights& weights, DType dtype);
/// check_weights() for gradients of these weights: float32 of the same shapes.
void check_gradients(const char* operation, const AdaptiveWeights& gradients, const AdaptiveWeights& weights);

/// The rows whose id is in one band, in rising order; undefined tensors if there are none.
struct BandRows {
  Tensor rows;  ///< int32 [n]
  Tensor ids;   ///< int32 [n], counted from the band's first word

  int64_t count() const { return rows.defined() ? rows.elements() : 0; }
};
/// Ids from `lowest` to -1 belong to no band. For other ids outside the vocabulary, throws Error that calls them
/// `name`.
std::vector<BandRows> rows_by_band(const char* operation, const char* name, const Tensor& ids, int32_t lowest,
                                   const AdaptiveWeights& weights);

/// y[rows[i]] = x[i], or += if requested. x [n, d] and y are contiguous and of one data type; no row occurs twice.
void scatter_rows(const Tensor& x, const Tensor& rows, Tensor& y, bool accumulate);

// Adaptive input: token embedding from the tables of the bands.

/// y [rows, d] = scale * table[id] * projection' of the id's band, with ids int32 [rows]; y is float32 or of the
/// weights' type. Throws Error naming the first id outside the vocabulary.
void adaptive_input(const Tensor& ids, const AdaptiveWeights& weights, float scale, Tensor& y);

/// Adds to the float32 gradients of the tables and projections.
void adaptive_input_backward(const Tensor& dy, const Tensor& ids, const AdaptiveWeights& weights, float scale,
                             AdaptiveWeights& gradients);

}  // namespace alibi::nn
