#include <algorithm>

#include "alibi/language_model.h"
#include "core/check.h"
#include "core/parallel.h"
#include "formats/weight_types.h"
#include "model/parameters.h"
#include "nn/elementwise.h"
#include "nn/weights.h"

namespace alibi {
namespace {

/// [rows, columns] in another type, rounded to nearest.
Tensor converted(const Tensor& weights, DType type) {
  const Shape shape = nn::shape_of_weights(weights);
  const int64_t rows = shape[0], columns = shape[1];
  if (type == DType::bfloat16 || type == DType::float32) {
    Tensor result = Tensor::empty(shape, type);
    nn::convert(nn::widened(weights), result);
    return result;
  }
  Tensor result = Tensor::empty({rows, columns / q8_block::size}, DType::q8_0);
  const auto* const from = static_cast<const char*>(weights.raw());
  auto* const to = static_cast<q8_block*>(result.raw());
  core::parallel_ranges(rows, 16, [&](int64_t begin, int64_t end) {
    std::vector<float> row(static_cast<size_t>(columns));
    for (int64_t r = begin; r < end; ++r) {
      nn::widen_row(from + r * nn::bytes_of_row(weights.dtype(), columns), weights.dtype(), columns, row.data());
      for (int64_t c = 0; c < columns; c += q8_block::size) {
        to[(r * columns + c) / q8_block::size] = formats::quantized(row.data() + c);
      }
    }
  });
  return result;
}

}  // namespace

void LanguageModel::convert_weights(DType type) {
  check_usage(type == DType::float32 || type == DType::bfloat16 || type == DType::q8_0,
              "[language model] weights cannot be converted to {}; choose float32, bfloat16 or q8_0", name_of(type));
  check(device() == Device::cpu, "[language model] weights are converted in the CPU's memory; call to(Device::cpu)");
  const std::vector<model::ParameterSpec> specs = model::parameter_specs(config());
  const std::vector<Parameter*> all = parameters();
  for (size_t i = 0; i < all.size(); ++i) {
    Tensor& value = all[i]->value;
    if (!specs[i].is_matrix || value.dtype() == type) continue;
    if (type == DType::q8_0 && nn::shape_of_weights(value)[1] % q8_block::size != 0) continue;
    all[i]->gradient = all[i]->rounded = Tensor();  // the rounded weights may be the former ones, which a file may hold
    value = converted(value, type);
  }
  weights_changed();
}

}  // namespace alibi
