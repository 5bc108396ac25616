#include "nn/adaptive_input.h"

#include "nn/elementwise.h"
#include "nn/embedding.h"
#include "nn/linear.h"
#include "nn/operators.h"
#include "nn/shape.h"

// Dimension letters: R rows, n rows of a band, d width of the model, d_b of the band.

namespace alibi::nn {
namespace {

/// That of the weights, in which products are computed.
DType checked_type(const char* operation, const char* name, const Tensor& tensor, const AdaptiveWeights& weights) {
  const DType dtype = weights.tables.empty() ? tensor.dtype() : weights.tables[0].dtype();
  check_weights(operation, weights, dtype);
  check(tensor.dtype() == dtype || tensor.dtype() == DType::float32,
        "[{}] {} is {}, the weights are {}; expected one type, or float32", operation, name, name_of(tensor.dtype()),
        name_of(dtype));
  return dtype;
}

}  // namespace

void adaptive_input(const Tensor& ids, const AdaptiveWeights& weights, float scale, Tensor& y) {
  if (ran_elsewhere(&Operators::adaptive_input, "adaptive_input", ids, weights, scale, y)) return;
  const char* operation = "adaptive_input";
  const DType dtype = checked_type(operation, "y", y, weights);
  check_rows(operation, "y", y, {ids.elements(), weights.d()}, y.dtype());
  const std::vector<BandRows> bands = rows_by_band(operation, "id", ids, 0, weights);
  for (size_t b = 0; b < bands.size(); ++b) {
    const int64_t count = bands[b].count();
    if (count == 0) continue;
    Tensor vectors = Tensor::empty({count, weights.tables[b].size(1)}, dtype);  // [n, d_b]
    embedding(bands[b].ids, weights.tables[b], scale, vectors);
    Tensor projected = Tensor::empty({count, weights.d()}, y.dtype());  // [n, d]
    linear(vectors, weights.projections[b], nullptr, projected);
    scatter_rows(projected, bands[b].rows, y, false);
  }
}

void adaptive_input_backward(const Tensor& dy, const Tensor& ids, const AdaptiveWeights& weights, float scale,
                             AdaptiveWeights& gradients) {
  if (ran_elsewhere(&Operators::adaptive_input_backward, "adaptive_input_backward", dy, ids, weights, scale, gradients))
    return;
  const char* operation = "adaptive_input_backward";
  const DType dtype = checked_type(operation, "dy", dy, weights);
  check_gradients(operation, gradients, weights);
  check_rows(operation, "dy", dy, {ids.elements(), weights.d()}, dy.dtype());
  const Tensor all = dy.reshape({ids.elements(), weights.d()});
  const std::vector<BandRows> bands = rows_by_band(operation, "id", ids, 0, weights);
  for (size_t b = 0; b < bands.size(); ++b) {
    const int64_t count = bands[b].count();
    if (count == 0) continue;
    const Shape shape{count, weights.tables[b].size(1)};
    Tensor vectors = Tensor::empty(shape, dtype);  // made again rather than kept: they cost a look-up
    embedding(bands[b].ids, weights.tables[b], scale, vectors);
    Tensor dprojected = Tensor::empty({count, weights.d()}, dy.dtype());
    embedding(bands[b].rows, all, 1, dprojected);  // gathers the band's rows of dy
    if (dy.dtype() != dtype) {
      const Tensor wide = dprojected;
      dprojected = Tensor::empty(wide.shape(), dtype);
      convert(wide, dprojected);
    }
    Tensor dvectors = Tensor::empty(shape, dtype);
    linear_backward(dprojected, vectors, weights.projections[b], &dvectors, &gradients.projections[b], nullptr);
    embedding_backward(dvectors, bands[b].ids, scale, gradients.tables[b]);
  }
}

}  // namespace alibi::nn
