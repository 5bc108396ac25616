#include "model/parameters.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include "core/parallel.h"
#include "core/pieces.h"
#include "model/transformer_state.h"
#include "model/vocabulary.h"
#include "nn/elementwise.h"

namespace alibi {
namespace {

/// Elements for one task: some ten microseconds of reading and writing memory.
constexpr int64_t parameter_grain = int64_t{1} << 15;

std::vector<ParameterSpec> specs_of(const DeclareParameters& declare) {
  std::vector<ParameterSpec> specs;
  declare([&](Parameter*&, ParameterSpec spec) { specs.push_back(std::move(spec)); });
  return specs;
}

}  // namespace

Start Start::xavier(int64_t fan_in, int64_t fan_out, float gain) {
  return uniform(gain * std::sqrt(6.0f / static_cast<float>(fan_in + fan_out)));
}

Start Start::linear(int64_t fan_in) { return uniform(1 / std::sqrt(static_cast<float>(fan_in))); }

void Start::fill(Tensor& values, const Random& random) const {
  if (kind == Kind::constant) return values.fill(value);
  float* to = values.data<float>();
  parallel_ranges(values.elements(), 1 << 14, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto counter = static_cast<uint64_t>(i);
      to[i] = value * (kind == Kind::normal ? random.normal(counter) : 2 * random.uniform(counter) - 1);
    }
  });
}

int64_t ParameterSpec::elements() const {
  return std::accumulate(shape.begin(), shape.end(), int64_t{1}, std::multiplies<>());
}

std::vector<Parameter> make_parameters(const DeclareParameters& declare, uint64_t seed) {
  std::vector<Parameter> made;
  std::vector<Parameter**> places;
  declare([&](Parameter*& place, ParameterSpec spec) {
    Parameter parameter{spec.name, Tensor::empty(spec.shape), {}, spec.decays, {}, spec.is_operand};
    spec.start.fill(parameter.value, Random(seed, spec.stream.value_or(mix(0x1417, made.size()))));
    if (spec.last_rows) {
      const int64_t rows = spec.shape[0];
      Tensor last = parameter.value.slice(0, rows - spec.last_rows->rows, rows);
      spec.last_rows->start.fill(last, Random(seed, spec.last_rows->stream));
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
  return specs_of([&](const VisitParameter& visit) { make_position(config)->declare(visit); });
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

void zero_gradients(const std::vector<Parameter*>& parameters) {
  Pieces pieces(parameter_grain);
  std::vector<float*> gradients;
  for (Parameter* parameter : parameters) {
    if (parameter->gradient.defined()) {
      pieces.add(parameter->gradient.elements());
      gradients.push_back(parameter->gradient.data<float>());
    } else {
      parameter->gradient = Tensor(parameter->value.shape());
    }
  }
  parallel_for(pieces.size(), [&](int64_t task) {
    const Piece piece = pieces.at(task);
    std::fill(gradients[piece.array] + piece.begin, gradients[piece.array] + piece.end, 0.0f);
  });
}

void round_operands(const std::vector<Parameter*>& parameters, Precision precision) {
  Pieces pieces(parameter_grain);
  std::vector<const Parameter*> operands;
  for (Parameter* parameter : parameters) {
    if (!parameter->is_operand || precision == Precision::f32) {
      parameter->rounded = Tensor();
      continue;
    }
    if (!parameter->rounded.defined()) parameter->rounded = Tensor::empty(parameter->value.shape(), DType::bfloat16);
    pieces.add(parameter->value.elements());
    operands.push_back(parameter);
  }
  parallel_for(pieces.size(), [&](int64_t task) {
    const Piece piece = pieces.at(task);
    const Parameter& parameter = *operands[piece.array];
    nn::convert_row(parameter.value.data<float>() + piece.begin, DType::float32, piece.end - piece.begin,
                    parameter.rounded.data<bfloat16>() + piece.begin, DType::bfloat16);
  });
}

}  // namespace alibi
