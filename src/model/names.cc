// The user-visible names of the choices in a configuration.
#include "core/names.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "alibi/runtime.h"
#include "alibi/transformer.h"
#include "core/check.h"
#include "core/product_rates.h"

namespace alibi {

const char* name_of(Activation value) { return enum_name(value); }
const char* name_of(Norm value) { return enum_name(value); }
const char* name_of(Bidirectional value) { return enum_name(value); }
const char* name_of(SlopeTraining value) { return enum_name(value); }
const char* name_of(Precision value) { return enum_name(value); }

Activation activation_from(std::string_view name) { return core::value_called<Activation>(name, "activation"); }
Norm norm_from(std::string_view name) { return core::value_called<Norm>(name, "norm"); }
Bidirectional bidirectional_from(std::string_view name) {
  return core::value_called<Bidirectional>(name, "bidirectional form");
}
SlopeTraining slope_training_from(std::string_view name) {
  return core::value_called<SlopeTraining>(name, "training of slopes");
}
Precision precision_from(std::string_view name) {
  return name == "auto" ? best_precision() : core::value_called<Precision>(name, "precision besides auto");
}

DType weight_type_from(std::string_view name) {
  constexpr std::pair<std::string_view, DType> types[] = {{"f32", DType::float32},
                                                          {"bf16", DType::bfloat16},
                                                          {"q8_0", DType::q8_0},
                                                          {"q4_0", DType::q4_0},
                                                          {"q4_k", DType::q4_k}};
  const auto* const found =
      std::find_if(std::begin(types), std::end(types), [&](const auto& type) { return type.first == name; });
  check_usage(found != std::end(types), "[model] weights are '{}'; choose from f32, bf16, q8_0, q4_0, q4_k", name);
  return found->second;
}

Precision best_precision() { return core::prefers_bf16() ? Precision::bf16 : Precision::f32; }
std::string why_best_precision() { return core::why_prefers_bf16(); }

}  // namespace alibi
