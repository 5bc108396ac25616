// Adaptive input and adaptive softmax written plainly in float64, and random weights to try them on.
#pragma once

#include <numeric>

#include "nn/adaptive_input.h"
#include "nn/reference.h"
#include "testing.h"

namespace alibi::test {

struct Bands {
  std::vector<int64_t> sizes, widths;  // words of each band, width of its vectors; widths[0] is the model's

  int64_t d() const { return widths[0]; }
  int64_t vocab() const { return std::accumulate(sizes.begin(), sizes.end(), int64_t{0}); }
  int64_t table_rows(size_t b) const { return sizes[b] + (b == 0 ? static_cast<int64_t>(sizes.size()) - 1 : 0); }
  int64_t first(size_t b) const {
    return std::accumulate(sizes.begin(), sizes.begin() + static_cast<std::ptrdiff_t>(b), int64_t{0});
  }
};

inline nn::AdaptiveWeights random_weights(const Bands& bands, uint64_t seed, DType dtype = DType::float32) {
  nn::AdaptiveWeights weights;
  for (size_t b = 0; b < bands.sizes.size(); ++b) {
    weights.tables.push_back(random_tensor({bands.table_rows(b), bands.widths[b]}, seed + 2 * b, 0.7f, dtype));
    weights.projections.push_back(random_tensor({bands.d(), bands.widths[b]}, seed + 2 * b + 1, 0.5f, dtype));
  }
  return weights;
}

inline nn::AdaptiveWeights filled_like(const nn::AdaptiveWeights& weights, float value) {
  nn::AdaptiveWeights result;
  for (const Tensor& table : weights.tables) result.tables.emplace_back(table.shape()).fill(value);
  for (const Tensor& projection : weights.projections) result.projections.emplace_back(projection.shape()).fill(value);
  return result;
}

/// All weights one after the other: tables, then projections.
inline Doubles flatten(const nn::AdaptiveWeights& weights) {
  Doubles flat;
  for (const auto* list : {&weights.tables, &weights.projections}) {
    for (const Tensor& tensor : *list) {
      const Doubles values = doubles(tensor);
      flat.insert(flat.end(), values.begin(), values.end());
    }
  }
  return flat;
}

/// Where the table or the projection of a band stands in that array.
inline size_t place(const Bands& bands, bool projection, size_t band) {
  size_t offset = 0;
  for (size_t b = 0; b < (projection ? bands.sizes.size() : band); ++b) {
    offset += at(bands.table_rows(b) * bands.widths[b]);
  }
  for (size_t b = 0; projection && b < band; ++b) offset += at(bands.d() * bands.widths[b]);
  return offset;
}

inline Doubles part(const Doubles& flat, size_t begin, int64_t count) {
  return {flat.begin() + static_cast<std::ptrdiff_t>(begin),
          flat.begin() + static_cast<std::ptrdiff_t>(begin + at(count))};
}

inline Doubles table_of(const Bands& bands, const Doubles& flat, size_t b) {
  return part(flat, place(bands, false, b), bands.table_rows(b) * bands.widths[b]);
}
inline Doubles projection_of(const Bands& bands, const Doubles& flat, size_t b) {
  return part(flat, place(bands, true, b), bands.d() * bands.widths[b]);
}

/// [rows, d]
inline Doubles adaptive_input_reference(const Bands& bands, const Doubles& flat, const std::vector<int32_t>& ids,
                                        double scale) {
  Doubles y;
  for (const int32_t id : ids) {
    size_t b = 0;
    while (id >= bands.first(b) + bands.sizes[b]) ++b;
    const Doubles table = table_of(bands, flat, b);
    const Doubles vector = part(table, at((id - bands.first(b)) * bands.widths[b]), bands.widths[b]);
    for (const double value :
         matmul_reference(vector, false, projection_of(bands, flat, b), true, 1, bands.d(), bands.widths[b])) {
      y.push_back(scale * value);
    }
  }
  return y;
}

/// log p of every word, [rows, vocab]: products of probabilities, not sums of losses.
inline Doubles adaptive_log_reference(const Bands& bands, const Doubles& flat, const Doubles& hidden, int64_t rows) {
  const auto softmax = [](Doubles logits) {
    const double top = *std::max_element(logits.begin(), logits.end());
    double sum = 0;
    for (double& value : logits) sum += value = std::exp(value - top);
    for (double& value : logits) value /= sum;
    return logits;
  };
  Doubles result;
  for (int64_t row = 0; row < rows; ++row) {
    const Doubles x = part(hidden, at(row * bands.d()), bands.d());
    const Doubles head =
        softmax(matmul_reference(x, false, table_of(bands, flat, 0), true, 1, bands.table_rows(0), bands.d()));
    for (size_t b = 0; b < bands.sizes.size(); ++b) {
      if (b == 0) {
        for (int64_t v = 0; v < bands.sizes[0]; ++v) result.push_back(std::log(head[at(v)]));
        continue;
      }
      const Doubles narrow =
          matmul_reference(x, false, projection_of(bands, flat, b), false, 1, bands.widths[b], bands.d());
      const Doubles tail =
          softmax(matmul_reference(narrow, false, table_of(bands, flat, b), true, 1, bands.sizes[b], bands.widths[b]));
      for (const double p : tail) result.push_back(std::log(head[at(bands.sizes[0]) + b - 1] * p));
    }
  }
  return result;
}

}  // namespace alibi::test
