#include "model/parameters.h"

#include <cmath>
#include <numeric>
#include <utility>

#include "core/files.h"
#include "model/transformer_state.h"
#include "model/vocabulary.h"
#include "nn/elementwise.h"
#include "nn/foreach.h"
#include "nn/weights.h"

namespace alibi::model {
namespace {

std::vector<ParameterSpec> specs_of(const DeclareParameters& declare) {
  std::vector<ParameterSpec> specs;
  declare([&](Parameter*&, ParameterSpec spec) { specs.push_back(std::move(spec)); });
  return specs;
}

}  // namespace

Initializer Initializer::xavier(int64_t fan_in, int64_t fan_out, float gain) {
  return uniform(gain * std::sqrt(6.0f / static_cast<float>(fan_in + fan_out)));
}

Initializer Initializer::linear(int64_t fan_in) { return uniform(1 / std::sqrt(static_cast<float>(fan_in))); }

void Initializer::fill(Tensor& values, const core::Random& random) const {
  switch (kind) {
    case Kind::constant:
      return values.fill(value);
    case Kind::normal:
      return nn::fill_normal(random, value, values);
    case Kind::uniform: {
      nn::fill_uniform(random, value, values);
      if (center == 0) return;
      Tensor moved = Tensor::empty(values.shape());
      moved.fill(center);
      return nn::add(values, moved, values);
    }
    case Kind::rows:
      const Tensor one = Tensor::from(row, {1, static_cast<int64_t>(row.size())});
      Tensor rows = values.reshape({-1, one.size(1)});
      for (int64_t i = 0; i < rows.size(0); ++i) rows.slice(0, i, i + 1).copy_from(one);
  }
}

int64_t ParameterSpec::elements() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

std::vector<Parameter> make_parameters(const DeclareParameters& declare, std::optional<uint64_t> seed) {
  std::vector<Parameter> made;
  std::vector<Parameter**> places;
  uint64_t counted = 0;  // number of parameters without their own stream so far
  declare([&](Parameter*& place, ParameterSpec spec) {
    Parameter parameter{spec.name, {}, {}, spec.decays, {}, spec.is_operand, spec.rate_factor};
    if (seed) {
      parameter.value = Tensor::empty(spec.shape);
      spec.start.fill(parameter.value, core::Random(*seed, spec.stream ? *spec.stream : core::mix(0x1417, counted++)));
    }
    if (seed && spec.last_rows) {
      const int64_t rows = spec.shape[0];
      Tensor last = parameter.value.slice(0, rows - spec.last_rows->rows, rows);
      spec.last_rows->start.fill(last, core::Random(*seed, spec.last_rows->stream));
    }
    made.push_back(std::move(parameter));
    places.push_back(&place);
  });
  for (size_t i = 0; i < made.size(); ++i) *places[i] = &made[i];
  return made;
}

std::vector<ParameterSpec> parameter_specs(const TransformerConfig& config) {
  return specs_of([&](const VisitParameter& visit) { TransformerLayers(config).declare(visit); });
}

std::vector<ParameterSpec> parameter_specs(const LanguageModelConfig& config) {
  return specs_of([&](const VisitParameter& visit) {
    make_vocabulary(config)->declare(visit);
    TransformerLayers(config.transformer).declare(visit);
  });
}

std::vector<ParameterSpec> position_specs(const TransformerConfig& config) {
  return specs_of([&](const VisitParameter& visit) { Positions(config).declare(visit); });
}

int64_t elements_of(const std::vector<ParameterSpec>& specs) {
  int64_t count = 0;
  for (const ParameterSpec& spec : specs) count += spec.elements();
  return count;
}

std::vector<Parameter*> pointers_to(std::vector<Parameter>& parameters) {
  std::vector<Parameter*> all;
  for (Parameter& parameter : parameters) all.push_back(&parameter);
  return all;
}

void to_float32(const std::vector<Parameter*>& parameters) {
  for (Parameter* parameter : parameters) {
    Tensor& value = parameter->value;
    if (!value.defined()) continue;
    if (value.dtype() == DType::float32 && !core::is_mapped(value.raw())) continue;
    value = nn::widened(value);
    if (!parameter->rounded.defined()) continue;  // else it may be the value itself
    parameter->rounded = Tensor::empty(value.shape(), DType::bfloat16);
    nn::convert(value, parameter->rounded);
  }
}

void zero_gradients(const std::vector<Parameter*>& parameters) {
  to_float32(parameters);
  nn::Tensors gradients;
  for (Parameter* parameter : parameters) {
    if (parameter->gradient.defined()) {
      gradients.push_back(parameter->gradient);
    } else {
      parameter->gradient = Tensor(parameter->value.shape(), DType::float32);
    }
  }
  nn::fill(gradients, 0);
}

void round_operands(const std::vector<Parameter*>& parameters, Precision precision) {
  nn::Tensors values, rounded;
  for (Parameter* parameter : parameters) {
    if (!parameter->is_operand || precision == Precision::f32) {
      parameter->rounded = Tensor();
      continue;
    }
    const Tensor& value = parameter->value;
    if (value.dtype() != DType::float32) {  // products of bfloat16 read other types as they are
      parameter->rounded = value.dtype() == DType::bfloat16 ? value : Tensor();
      continue;
    }
    if (!parameter->rounded.defined()) parameter->rounded = Tensor::empty(value.shape(), DType::bfloat16);
    values.push_back(value);
    rounded.push_back(parameter->rounded);
  }
  nn::convert(values, rounded);
}

}  // namespace alibi::model
