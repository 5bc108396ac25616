#include "nn/embedding.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "nn/embedding.cc"
#include "hwy/foreach_target.h"
// Must come after foreach_target.h.
#include "nn/simd-inl.h"

HWY_BEFORE_NAMESPACE();
namespace alibi::nn {
namespace HWY_NAMESPACE {

template <class T>
void look_up_as(const T* table, const int32_t* ids, int64_t count, int64_t d, float scale, T* y) {
  const V factor = set(scale);
  for (int64_t row = 0; row < count; ++row, y += d) {
    const T* entry = table + ids[row] * d;
    each_vector(d,
                [&](int64_t i, auto lanes) HWY_ATTR { store(hn::Mul(factor, load(entry + i, lanes)), y + i, lanes); });
  }
}
void look_up(const void* table, const int32_t* ids, int64_t count, int64_t d, float scale, void* y, DType dtype) {
  dtype == DType::bfloat16
      ? look_up_as(static_cast<const bfloat16*>(table), ids, count, d, scale, static_cast<bfloat16*>(y))
      : look_up_as(static_cast<const float*>(table), ids, count, d, scale, static_cast<float*>(y));
}

/// Columns [begin, end) of dtable[ids] += scale * dy, row after row.
template <class T>
void add_columns_as(const T* dy, const int32_t* ids, int64_t count, int64_t d, float scale, int64_t begin, int64_t end,
                    float* dtable) {
  const V factor = set(scale);
  for (int64_t row = 0; row < count; ++row) {
    const T* from = dy + row * d + begin;
    float* to = dtable + ids[row] * d + begin;
    each_vector(end - begin, [&](int64_t i, auto lanes) HWY_ATTR {
      store(hn::MulAdd(factor, load(from + i, lanes), load(to + i, lanes)), to + i, lanes);
    });
  }
}
void add_columns(const void* dy, const int32_t* ids, int64_t count, int64_t d, float scale, int64_t begin, int64_t end,
                 float* dtable, DType dtype) {
  dtype == DType::bfloat16 ? add_columns_as(static_cast<const bfloat16*>(dy), ids, count, d, scale, begin, end, dtable)
                           : add_columns_as(static_cast<const float*>(dy), ids, count, d, scale, begin, end, dtable);
}

}  // namespace HWY_NAMESPACE
}  // namespace alibi::nn
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
#include "core/isa.h"
#include "core/parallel.h"
#include "nn/scale.h"
#include "nn/shape.h"
#include "nn/weights.h"

namespace alibi::nn {
namespace {

HWY_EXPORT(look_up);
HWY_EXPORT(add_columns);

const int32_t* checked_ids(const char* operation, const Tensor& ids, int64_t rows, int64_t vocab) {
  check_vector(operation, "ids", ids, rows, DType::int32);
  const int32_t* values = ids.data<int32_t>();
  for (int64_t i = 0; i < rows; ++i) {
    check(values[i] >= 0 && values[i] < vocab, "[{}] id {} at row {}, expected 0 to {}", operation, values[i], i,
          vocab - 1);
  }
  return values;
}

/// Rows of a table of another type than y, which is float32.
void widened_embedding(const Tensor& ids, const Tensor& table, float scale, Tensor& y) {
  const Shape shape = shape_of_weights(table);
  check(is_weight_type(table.dtype()) && table.axes() == 2 && table.contiguous(),
        "[embedding] table is {} {}, expected a contiguous matrix of floating-point numbers", name_of(table.dtype()),
        to_string(table.shape()));
  const Rows out{ids.elements(), shape[1]};
  check_rows("embedding", "y", y, out, DType::float32);
  const int32_t* values = checked_ids("embedding", ids, out.rows, shape[0]);
  const int64_t row_bytes = bytes_of_row(table.dtype(), out.features);
  core::parallel_ranges(out.rows, rows_per_task(out.features), [&](int64_t begin, int64_t end) {
    for (int64_t row = begin; row < end; ++row) {
      widen_row(static_cast<const char*>(table.raw()) + values[row] * row_bytes, table.dtype(), out.features,
                y.data<float>() + row * out.features);
    }
  });
  if (scale != 1) nn::scale(y, scale, y);
}

}  // namespace

void embedding(const Tensor& ids, const Tensor& table, float scale, Tensor& y) {
  if (table.dtype() != y.dtype()) return widened_embedding(ids, table, scale, y);
  const Rows shape = rows_of("embedding", "table", table);
  const Rows out{ids.elements(), shape.features};
  check_rows("embedding", "y", y, out, table.dtype());
  const int32_t* values = checked_ids("embedding", ids, out.rows, shape.rows);
  core::prepare_dispatch();
  const auto kernel = HWY_DYNAMIC_DISPATCH(look_up);
  const auto row_bytes = static_cast<int64_t>(size_of(y.dtype())) * out.features;
  core::parallel_ranges(out.rows, rows_per_task(out.features), [&](int64_t begin, int64_t end) {
    kernel(table.raw(), values + begin, end - begin, out.features, scale,
           static_cast<char*>(y.raw()) + begin * row_bytes, y.dtype());
  });
}

void embedding_backward(const Tensor& dy, const Tensor& ids, float scale, Tensor& dtable) {
  const Rows shape = rows_of("embedding_backward", "dtable", dtable);
  check_rows("embedding_backward", "dtable", dtable, shape, DType::float32);
  const Rows out{ids.elements(), shape.features};
  check_rows("embedding_backward", "dy", dy, out, dy.dtype());
  const int32_t* values = checked_ids("embedding_backward", ids, out.rows, shape.rows);
  core::prepare_dispatch();
  const auto kernel = HWY_DYNAMIC_DISPATCH(add_columns);
  // Rows with the same id must be added in order, so the work is divided by columns.
  constexpr int64_t columns = 32;
  core::parallel_ranges(out.features, columns, [&](int64_t begin, int64_t end) {
    kernel(dy.raw(), values, out.rows, out.features, scale, begin, end, dtable.data<float>(), dy.dtype());
  });
}

}  // namespace alibi::nn
#endif  // HWY_ONCE
