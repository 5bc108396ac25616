#include <fmt/format.h>

#include <algorithm>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "alibi/language_model.h"
#include "core/check.h"
#include "core/parallel.h"
#include "core/warning.h"
#include "formats/weight_types.h"
#include "model/parameters.h"
#include "nn/elementwise.h"
#include "nn/weights.h"

namespace alibi {
namespace {

/// [rows, columns] in another type, rounded to nearest. Throws Error with the name if a number does not fit.
Tensor converted(const std::string& name, const Tensor& weights, DType type) {
  const Shape shape = nn::shape_of_weights(weights);
  const int64_t rows = shape[0], columns = shape[1];
  if (type == DType::bfloat16 || type == DType::float32) {
    Tensor result = Tensor::empty(shape, type);
    const Tensor wide = nn::widened(weights);
    const std::string_view stored = type == DType::bfloat16 ? "BF16" : "F32";
    const std::span<const float> values(wide.data<float>(), static_cast<size_t>(wide.elements()));
    formats::check_fits(values, *formats::weight_type(stored), name);
    nn::convert(wide, result);
    return result;
  }
  Tensor result = Tensor::empty({rows, columns / q8_block::size}, DType::q8_0);
  const auto* const from = static_cast<const char*>(weights.raw());
  auto* const to = static_cast<q8_block*>(result.raw());
  core::parallel_ranges(rows, 16, [&](int64_t begin, int64_t end) {
    std::vector<float> row(static_cast<size_t>(columns));
    for (int64_t r = begin; r < end; ++r) {
      nn::widen_row(from + r * nn::bytes_of_row(weights.dtype(), columns), weights.dtype(), columns, row.data());
      formats::check_fits(row, *formats::weight_type("Q8_0"), name, r * columns);
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
  const std::vector<model::ParameterSpec> specs = model::parameter_specs(config());
  const std::vector<Parameter*> all = parameters();
  std::vector<std::string_view> kept;
  for (size_t i = 0; i < all.size(); ++i) {
    Tensor& value = all[i]->value;
    if (!specs[i].is_matrix || value.dtype() == type) continue;
    if (type == DType::q8_0 && nn::shape_of_weights(value)[1] % q8_block::size != 0) {
      kept.push_back(all[i]->name);
      continue;
    }
    all[i]->gradient = all[i]->rounded = Tensor();  // the rounded weights may be the former ones, which a file may hold
    value = converted(all[i]->name, value, type);
  }
  weights_changed();
  if (kept.empty()) return;
  core::warn(fmt::format("{} matrices keep their type, because rows of q8_0 have a multiple of {} numbers: {}",
                         kept.size(), int64_t{q8_block::size}, fmt::join(kept, ", ")));
}

}  // namespace alibi
