#include "model/position.h"

#include <algorithm>
#include <array>
#include <utility>

#include "core/check.h"
#include "core/random.h"
#include "nn/elementwise.h"

namespace alibi {
namespace {

using model::InputPositions;
using model::PositionBias;
using model::PositionMethod;
using model::Rotation;

const PositionMethod* find_method(std::string_view name) {
  const auto& all = model::position_methods();
  const auto found = std::find_if(all.begin(), all.end(), [&](const auto& method) { return method.name == name; });
  return found == all.end() ? nullptr : &*found;
}

/// Combines two values of one choice.
std::string_view either(std::string_view a, std::string_view b, const char* choice) {
  check_usage(a.empty() || b.empty(), "[config] position methods '{}' and '{}' are both the {} of a model; choose one",
              a, b, choice);
  return a.empty() ? b : a;
}

/// Makes a part of a model's positions by the name of its method.
template <class Part>
std::unique_ptr<Part> part_called(std::string_view name, const char* choice, const TransformerConfig& config) {
  if (name.empty()) return std::make_unique<Part>(config);
  const PositionMethod* const method = find_method(name);
  const auto* const make = method ? std::get_if<PositionMethod::Make<Part>>(&method->make) : nullptr;
  check_usage(make != nullptr, "[config] position.{} is '{}': there is no such method", choice, name);
  return (*make)(config);
}

}  // namespace

Position operator+(const Position& a, const Position& b) {
  return {either(a.input, b.input, "input"), either(a.rotation, b.rotation, "rotation"),
          either(a.bias, b.bias, "bias")};
}

std::vector<std::string> position_names() {
  std::vector<std::string> names;
  for (const PositionMethod& method : model::position_methods()) names.emplace_back(method.name);
  names.emplace_back("none");
  return names;
}

std::string name_of(const Position& position) {
  std::string name;
  for (const std::string_view part : {position.input, position.rotation, position.bias}) {
    if (!name.empty() && !part.empty()) name += '+';
    name += part;
  }
  return name.empty() ? "none" : name;
}

Position position_from(std::string_view name) {
  if (name == "none") return Position::none;
  Position position;
  for (size_t begin = 0; begin <= name.size();) {
    const size_t end = std::min(name.find('+', begin), name.size());
    const PositionMethod* const method = find_method(name.substr(begin, end - begin));
    check_usage(
        method != nullptr,
        "[config] there is no position method called '{}' (several are joined by +: rotary+alibi); choose from {}",
        name.substr(begin, end - begin), fmt::join(position_names(), ", "));
    Position part;
    *std::array{&part.input, &part.rotation, &part.bias}[method->make.index()] = method->name;
    position = position + part;
    begin = end + 1;
  }
  return position;
}

void model::InputPositions::enter(const Tensor& x, int64_t, Tensor& y) const {
  if (x.raw() != y.raw()) nn::convert(x, y);
}

model::Positions::Positions(const TransformerConfig& config)
    : input(part_called<InputPositions>(config.position.input, "input", config)),
      rotation(part_called<Rotation>(config.position.rotation, "rotation", config)),
      bias(part_called<PositionBias>(config.position.bias, "bias", config)) {}

void model::Positions::check(const ConfigFields& fields) const {
  input->check(fields);
  rotation->check(fields);
  bias->check(fields);
}

void model::Positions::fit(TransformerConfig& config, int64_t train_length) const {
  input->fit(config, train_length);
  rotation->fit(config, train_length);
  bias->fit(config, train_length);
}

void model::Positions::set_defaults(TransformerConfig& config, int64_t train_length) const {
  input->set_defaults(config, train_length);
  rotation->set_defaults(config, train_length);
  bias->set_defaults(config, train_length);
}

void model::Positions::declare(const VisitParameter& visit) const {
  // Streams of random numbers that differ from those of the shared parameters, so that these have the same initial
  // values with every method.
  uint64_t stream = ~uint64_t{0};
  const VisitParameter with_stream = [&](Parameter*& place, ParameterSpec spec) {
    spec.stream = core::mix(0x1417, --stream);
    visit(place, std::move(spec));
  };
  input->declare(with_stream);
  rotation->declare(with_stream);
  bias->declare(with_stream);
}

bool model::can_interpolate(const TransformerConfig& config, RotaryScaling rotary) {
  const Position& position = config.position;
  if (rotary != RotaryScaling::linear) return !position.rotation.empty();
  const Positions positions(config);
  return position != Position::none && (position.input.empty() || positions.input->interpolates()) &&
         (position.rotation.empty() || positions.rotation->interpolates()) &&
         (position.bias.empty() || positions.bias->interpolates());
}

formats::OrderedJson model::interpolation_json(const Interpolation& interpolation) {
  const std::string factor = interpolation.dynamic ? "dynamic" : fmt::format("{:g}", interpolation.factor);
  if (interpolation.rotary != RotaryScaling::linear) {
    return fmt::format("{}:{}", kRotaryScalings[static_cast<size_t>(interpolation.rotary)], factor);
  }
  if (interpolation.dynamic) return factor;
  return interpolation.factor;
}

std::vector<std::vector<float>> model::slopes_of(const PositionBias& bias, const TransformerConfig& config) {
  std::vector<std::vector<float>> all;
  const std::vector<AttentionOptions> biases = bias.biases(1, 1);
  if (biases.front().alibi_slopes.empty()) return all;
  for (size_t layer = 0; layer < static_cast<size_t>(config.layers); ++layer) {
    const AttentionOptions& of_layer = biases[biases.size() == 1 ? 0 : layer];
    all.push_back(of_layer.alibi_slopes);
    all.back().insert(all.back().end(), of_layer.alibi_slopes_after.begin(), of_layer.alibi_slopes_after.end());
    if (!config.attention.has_positions(static_cast<int>(layer))) all.back().assign(all.back().size(), 0);
  }
  return all;
}

}  // namespace alibi
