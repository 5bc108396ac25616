// The user-visible names of the choices in a configuration.
#include "core/names.h"

#include "alibi/runtime.h"
#include "alibi/transformer.h"
#include "core/product_rates.h"

namespace alibi {

const char* name_of(Position value) { return enum_name(value); }
const char* name_of(Activation value) { return enum_name(value); }
const char* name_of(Norm value) { return enum_name(value); }
const char* name_of(Bidirectional value) { return enum_name(value); }
const char* name_of(SlopeTraining value) { return enum_name(value); }
const char* name_of(Precision value) { return enum_name(value); }

Position position_from(std::string_view name) { return core::value_called<Position>(name, "position method"); }
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

Precision best_precision() { return core::prefers_bf16() ? Precision::bf16 : Precision::f32; }
std::string why_best_precision() { return core::why_prefers_bf16(); }

}  // namespace alibi
