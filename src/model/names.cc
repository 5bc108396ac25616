// The names users write for the choices of a configuration.
#include <array>
#include <utility>

#include "alibi/runtime.h"
#include "alibi/transformer.h"
#include "core/check.h"

namespace alibi {
namespace {

template <class Enum, size_t n>
using Names = std::array<std::pair<Enum, const char*>, n>;

constexpr Names<Position, 6> position_names{{{Position::alibi, "alibi"},
                                             {Position::sinusoidal, "sinusoidal"},
                                             {Position::rotary, "rotary"},
                                             {Position::t5, "t5"},
                                             {Position::learned, "learned"},
                                             {Position::none, "none"}}};
constexpr Names<Activation, 5> activations{{{Activation::gelu, "gelu"},
                                            {Activation::gelu_tanh, "gelu_tanh"},
                                            {Activation::relu, "relu"},
                                            {Activation::swiglu, "swiglu"},
                                            {Activation::geglu, "geglu"}}};
constexpr Names<Norm, 2> norms{{{Norm::layer_norm, "layer_norm"}, {Norm::rms_norm, "rms_norm"}}};
constexpr Names<Bidirectional, 3> forms{{{Bidirectional::symmetric, "symmetric"},
                                         {Bidirectional::one_sided, "one_sided"},
                                         {Bidirectional::two_slopes, "two_slopes"}}};
constexpr Names<Precision, 2> precisions{{{Precision::f32, "f32"}, {Precision::bf16, "bf16"}}};

template <class Enum, size_t n>
const char* find_name(const Names<Enum, n>& names, Enum value) {
  for (const auto& [candidate, name] : names) {
    if (candidate == value) return name;
  }
  return "?";
}

template <class Enum, size_t n>
Enum find_value(const Names<Enum, n>& names, std::string_view wanted, const char* what) {
  std::string known;
  for (const auto& [value, name] : names) {
    if (wanted == name) return value;
    known += known.empty() ? name : std::string(", ") + name;
  }
  fail_usage("[config] there is no {} called '{}'; choose from {}", what, wanted, known);
}

}  // namespace

const char* name_of(Position value) { return find_name(position_names, value); }
const char* name_of(Activation value) { return find_name(activations, value); }
const char* name_of(Norm value) { return find_name(norms, value); }
const char* name_of(Bidirectional value) { return find_name(forms, value); }
const char* name_of(Precision value) { return find_name(precisions, value); }

Position position_from(std::string_view name) { return find_value(position_names, name, "position method"); }
Activation activation_from(std::string_view name) { return find_value(activations, name, "activation"); }
Norm norm_from(std::string_view name) { return find_value(norms, name, "norm"); }
Bidirectional bidirectional_from(std::string_view name) { return find_value(forms, name, "bidirectional form"); }
Precision precision_from(std::string_view name) {
  return name == "auto" ? best_precision() : find_value(precisions, name, "precision besides auto");
}

Precision best_precision() { return isa() >= Isa::avx512_bf16 ? Precision::bf16 : Precision::f32; }

}  // namespace alibi
