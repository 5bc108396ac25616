// Parameters from the tensors of a file: views where that is possible, else copies in the order that the layers have.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>

#include "core/check.h"
#include "core/parallel.h"
#include "formats/weight_types.h"
#include "model/families/family.h"
#include "nn/norm.h"

namespace alibi::model {
namespace {

/// Up to these bytes of all tensors together, views are searched for numbers that are not finite.
constexpr size_t kMaxSearchedBytes = size_t{1} << 30;

bool are_searched(const formats::WeightSource& weights) {
  size_t bytes = 0;
  for (const formats::TensorInfo& tensor : weights.tensors()) bytes += tensor.end - tensor.begin;
  return bytes <= kMaxSearchedBytes;
}

/// out [rows, columns] = the transpose of numbers of 16 bits [columns, rows].
void transpose_halves(const std::byte* from, Tensor& out) {
  const int64_t rows = out.size(0), columns = out.size(1);
  auto* const to = static_cast<std::byte*>(out.raw());
  constexpr int64_t edge = 64;  // of tiles, so that each cache line is used whole
  core::parallel_ranges(rows, edge, [&](int64_t begin, int64_t end) {
    for (int64_t first = 0; first < columns; first += edge) {
      for (int64_t row = begin; row < end; ++row) {
        for (int64_t column = first; column < std::min(columns, first + edge); ++column) {
          std::memcpy(to + 2 * (row * columns + column), from + 2 * (column * rows + row), 2);
        }
      }
    }
  });
}

/// Reads one tensor into its rows of a parameter.
void load_part(const std::string& name, const Source& source, const formats::WeightSource& weights,
               const LanguageModelConfig& config, Tensor& part) {
  if (is_transposed(source, weights.info(name).shape)) {
    if (part.dtype() == DType::float32) return weights.load_transposed_into(name, part);
    const std::span<const std::byte> bytes = weights.bytes(name);
    return transpose_halves(bytes.data(), part);
  }
  if (source.arrangement == Arrangement::halves_swapped) {
    const int64_t half = part.size(0) / 2;
    for (const auto& [from, to] : {std::pair<int64_t, int64_t>{half, 0}, {0, half}}) {
      Tensor target = part.slice(0, to, to + half);
      weights.load_rows_into(name, from, target);
    }
    return;
  }
  if (source.arrangement != Arrangement::heads_interleaved) return weights.load_into(name, part);
  const int64_t heads = config.transformer.attention.heads, dim = part.size(0) / (3 * heads);
  for (int64_t i = 0; i < 3 * heads; ++i) {  // head i / 3; query, key or value
    Tensor target = part.slice(0, (i % 3 * heads + i / 3) * dim, (i % 3 * heads + i / 3 + 1) * dim);
    weights.load_rows_into(name, i * dim, target);
  }
}

/// The rows of a head divided by their lengths. The RMS norm divides by length / sqrt(width); the length is at least
/// 1e-12, as PyTorch's normalize() has it.
void normalize_rows(Tensor& head) {
  const auto width = static_cast<float>(head.size(1));
  Tensor weight = Tensor::empty({head.size(1)});
  weight.fill(1 / std::sqrt(width));
  nn::NormStatistics statistics{{}, Tensor::empty({head.size(0)})};
  nn::norm(head, {weight, nullptr, 1e-24f / width, false}, head, statistics);
}

}  // namespace

DType type_of_parameter(const Source& source, const ParameterSpec& spec, const formats::WeightSource& weights) {
  if (!spec.is_matrix || source.arrangement == Arrangement::unit_rows) return DType::float32;
  const auto type_of = [&](const std::string& name) { return formats::weight_type(weights.info(name).dtype)->dtype; };
  const DType type = type_of(source.tensors.front());
  const auto differs = [&](const std::string& name) { return type_of(name) != type; };
  const auto is_plain = [&](const std::string& name) { return numbers_in(type_of(name)) == 1; };
  const bool same = std::none_of(source.tensors.begin(), source.tensors.end(), differs);
  if (!same && std::any_of(source.tensors.begin(), source.tensors.end(), is_plain)) return DType::float32;
  const DType kept = same ? type : DType::q8_0;  // files have queries and values of different types of blocks
  if (numbers_in(kept) > 1 && (is_transposed(source, spec.shape) || spec.shape.back() % numbers_in(kept) != 0)) {
    return DType::float32;  // blocks go along the wrong axis
  }
  return kept;
}

Tensor load_parameter(const Source& source, const ParameterSpec& spec, const formats::WeightSource& weights,
                      const LanguageModelConfig& config) {
  const DType type = type_of_parameter(source, spec, weights);
  if (spec.is_matrix && source.arrangement == Arrangement::plain) {
    Tensor view = weights.view(source.tensors);
    if (view.defined()) {
      for (int64_t row = 0; const std::string& name : source.tensors) {
        const int64_t end = row + weights.info(name).shape[0];
        if (are_searched(weights)) weights.check_finite(name, view.slice(0, row, end));
        row = end;
      }
      return view;
    }
  }
  Shape shape = spec.shape;
  if (!shape.empty()) shape.back() /= numbers_in(type);
  Tensor value = Tensor::empty(shape, type);
  int64_t begin = 0;
  for (const std::string& name : source.tensors) {
    const Shape& of_tensor = weights.info(name).shape;
    const int64_t rows = rows_of(source, of_tensor);
    Tensor part = source.tensors.size() == 1 ? value : value.slice(0, begin, begin + rows);
    begin += rows;
    load_part(name, source, weights, config, part);
    weights.check_finite(name, part);
  }
  if (source.arrangement == Arrangement::unit_rows) normalize_rows(value);
  return value;
}

}  // namespace alibi::model
