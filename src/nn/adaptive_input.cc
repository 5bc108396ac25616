#include "nn/adaptive_input.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/adaptive_input.cc"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h.
#include "nn/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace alibi::nn {
namespace HWY_NAMESPACE {

template <class T>
void scatter_as(const T* x, const int32_t* rows, int64_t count, int64_t d, bool accumulate, T* y) {
  for (int64_t i = 0; i < count; ++i) {
    const T* from = x + i * d;
    T* to = y + rows[i] * d;
    each_vector(d, [&](int64_t j, auto lanes) HWY_ATTR {
      const V value = load(from + j, lanes);
      store(accumulate ? hn::Add(load(to + j, lanes), value) : value, to + j, lanes);
    });
  }
}
void scatter(const void* x, const int32_t* rows, int64_t count, int64_t d, bool accumulate, void* y, DType dtype) {
  dtype == DType::bfloat16
      ? scatter_as(static_cast<const bfloat16*>(x), rows, count, d, accumulate, static_cast<bfloat16*>(y))
      : scatter_as(static_cast<const float*>(x), rows, count, d, accumulate, static_cast<float*>(y));
}

}  // namespace HWY_NAMESPACE
}  // namespace alibi::nn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include <algorithm>

#include "core/isa.h"
#include "core/parallel.h"
#include "nn/elementwise.h"
#include "nn/embedding.h"
#include "nn/linear.h"
#include "nn/shape.h"

// Dimension letters: R rows, n rows of a band, d width of the model, d_b of the band.

namespace alibi::nn {
namespace {

HWY_EXPORT(scatter);

/// Checks and returns the data type of the weights, in which products are computed.
DType checked_type(const char* operation, const char* name, const Tensor& tensor, const AdaptiveWeights& weights) {
  const DType dtype = weights.tables.empty() ? tensor.dtype() : weights.tables[0].dtype();
  check_weights(operation, weights, dtype);
  check(tensor.dtype() == dtype || tensor.dtype() == DType::float32,
        "[{}] {} is {}, the weights are {}; expected one type, or float32", operation, name, name_of(tensor.dtype()),
        name_of(dtype));
  return dtype;
}

}  // namespace

int64_t AdaptiveWeights::band_size(int band) const {
  return tables[static_cast<size_t>(band)].size(0) - (band == 0 ? bands() - 1 : 0);
}

int64_t AdaptiveWeights::vocab_size() const {
  int64_t words = 0;
  for (int band = 0; band < bands(); ++band) words += band_size(band);
  return words;
}

void check_weights(const char* operation, const AdaptiveWeights& weights, DType dtype) {
  const size_t bands = weights.tables.size();
  check(bands > 0 && weights.projections.size() == bands,
        "[{}] there are {} tables and {} projections, expected one of each per band", operation, bands,
        weights.projections.size());
  const int64_t d = rows_of(operation, "the table of band 0", weights.tables[0]).features;
  for (size_t b = 0; b < bands; ++b) {
    const Rows table = rows_of(operation, "a table", weights.tables[b]);
    const Rows projection = rows_of(operation, "a projection", weights.projections[b]);
    check(weights.tables[b].axes() == 2 && weights.tables[b].dtype() == dtype &&
              weights.band_size(static_cast<int>(b)) > 0,
          "[{}] the table of band {} is {} {}, expected {} with rows for its words{}", operation, b,
          name_of(weights.tables[b].dtype()), to_string(weights.tables[b].shape()), name_of(dtype),
          b == 0 ? " and for the other bands" : "");
    check(projection.rows == d && projection.features == table.features && weights.projections[b].dtype() == dtype,
          "[{}] the projection of band {} is {} {}, expected {} [{}, {}]", operation, b,
          name_of(weights.projections[b].dtype()), to_string(weights.projections[b].shape()), name_of(dtype), d,
          table.features);
  }
}

void check_gradients(const char* operation, const AdaptiveWeights& gradients, const AdaptiveWeights& weights) {
  check(gradients.tables.size() == weights.tables.size() && gradients.projections.size() == weights.projections.size(),
        "[{}] there are gradients of {} tables and {} projections, expected {} of each", operation,
        gradients.tables.size(), gradients.projections.size(), weights.tables.size());
  for (size_t b = 0; b < weights.tables.size(); ++b) {
    check_rows(operation, "the gradient of a table", gradients.tables[b], rows_of(operation, "", weights.tables[b]),
               DType::float32);
    check_rows(operation, "the gradient of a projection", gradients.projections[b],
               rows_of(operation, "", weights.projections[b]), DType::float32);
  }
}

std::vector<BandRows> rows_by_band(const char* operation, const char* name, const Tensor& ids, int32_t lowest,
                                   const AdaptiveWeights& weights) {
  check_vector(operation, name, ids, ids.elements(), DType::int32);
  std::vector<int64_t> ends;  // one past the last word of each band
  for (int band = 0; band < weights.bands(); ++band) {
    ends.push_back((ends.empty() ? 0 : ends.back()) + weights.band_size(band));
  }
  std::vector<std::vector<int32_t>> rows(ends.size()), own_ids(ends.size());
  const int32_t* values = ids.data<int32_t>();
  for (int64_t row = 0; row < ids.elements(); ++row) {
    const int32_t id = values[row];
    check(id >= lowest && id < ends.back(), "[{}] {} {} at row {}, expected {} to {}", operation, name, id, row, lowest,
          ends.back() - 1);
    if (id < 0) continue;
    const auto band = static_cast<size_t>(std::upper_bound(ends.begin(), ends.end(), id) - ends.begin());
    rows[band].push_back(static_cast<int32_t>(row));
    own_ids[band].push_back(id - static_cast<int32_t>(band == 0 ? 0 : ends[band - 1]));
  }
  std::vector<BandRows> result(ends.size());
  for (size_t band = 0; band < ends.size(); ++band) {
    if (rows[band].empty()) continue;
    const Shape shape{static_cast<int64_t>(rows[band].size())};
    result[band] = {Tensor::from(rows[band], shape), Tensor::from(own_ids[band], shape)};
  }
  return result;
}

void scatter_rows(const Tensor& x, const Tensor& rows, Tensor& y, bool accumulate) {
  const Rows from = rows_of("scatter_rows", "x", x), to = rows_of("scatter_rows", "y", y);
  check(from.features == to.features && x.dtype() == y.dtype(),
        "[scatter_rows] x is {} {}, y is {} {}; expected one type and width", name_of(x.dtype()), to_string(x.shape()),
        name_of(y.dtype()), to_string(y.shape()));
  check_vector("scatter_rows", "rows", rows, from.rows, DType::int32);
  const int32_t* places = rows.data<int32_t>();
  core::prepare_dispatch();
  const auto kernel = HWY_DYNAMIC_DISPATCH(scatter);
  const auto row_bytes = static_cast<int64_t>(size_of(x.dtype())) * from.features;
  core::parallel_ranges(from.rows, rows_per_task(from.features), [&](int64_t begin, int64_t end) {
    kernel(static_cast<const char*>(x.raw()) + begin * row_bytes, places + begin, end - begin, from.features,
           accumulate, y.raw(), x.dtype());
  });
}

void adaptive_input(const Tensor& ids, const AdaptiveWeights& weights, float scale, Tensor& y) {
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
    Tensor vectors = Tensor::empty(shape, dtype);  // recomputed instead of kept, because it costs only a lookup
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
#endif  // HWY_ONCE
