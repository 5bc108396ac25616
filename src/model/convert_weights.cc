#include <fmt/format.h>

#include <algorithm>
#include <cstddef>
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
  const formats::WeightType& file_type = formats::weight_type(type);
  Tensor result = Tensor::empty({rows, columns / numbers_in(type)}, type);
  const auto* const from = static_cast<const char*>(weights.raw());
  auto* const to = static_cast<std::byte*>(result.raw());
  core::parallel_ranges(rows, 16, [&](int64_t begin, int64_t end) {
    std::vector<float> row(static_cast<size_t>(columns));
    for (int64_t r = begin; r < end; ++r) {
      nn::widen_row(from + r * nn::bytes_of_row(weights.dtype(), columns), weights.dtype(), columns, row.data());
      formats::check_fits(row, file_type, name, r * columns);
      std::byte* block = to + r * nn::bytes_of_row(type, columns);
      for (int64_t c = 0; c < columns; c += numbers_in(type), block += size_of(type)) {
        file_type.encode(row.data() + c, block);
      }
    }
  });
  return result;
}

}  // namespace

void LanguageModel::convert_weights(DType type) {
  check_usage(type == DType::float32 || type == DType::bfloat16 ||
                  (numbers_in(type) > 1 && formats::weight_type(type).encode != nullptr),
              "[language model] weights cannot be converted to {}; choose float32, bfloat16, q8_0, q4_0 or q4_k",
              name_of(type));
  const std::vector<model::ParameterSpec> specs = model::parameter_specs(config());
  const std::vector<Parameter*> all = parameters();
  std::vector<std::string_view> kept;
  for (size_t i = 0; i < all.size(); ++i) {
    Tensor& value = all[i]->value;
    if (!specs[i].is_matrix || value.dtype() == type) continue;
    if (nn::shape_of_weights(value)[1] % numbers_in(type) != 0) {
      kept.push_back(all[i]->name);
      continue;
    }
    all[i]->gradient = all[i]->rounded = Tensor();  // the rounded weights may be the former ones, which a file may hold
    value = converted(all[i]->name, value, type);
  }
  weights_changed();
  if (kept.empty()) return;
  core::warn(fmt::format("{} matrices keep their type, because rows of {} have a multiple of {} numbers: {}",
                         kept.size(), name_of(type), numbers_in(type), fmt::join(kept, ", ")));
}

}  // namespace alibi
