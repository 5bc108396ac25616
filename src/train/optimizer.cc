#include "train/optimizer.h"

#include <cmath>
#include <set>
#include <utility>

#include "nn/foreach.h"

namespace alibi::training {
namespace {

nn::Tensors gradients_of(const std::vector<Parameter*>& parameters) {
  nn::Tensors gradients;
  for (const Parameter* parameter : parameters) gradients.push_back(parameter->gradient);
  return gradients;
}

}  // namespace

double gradient_norm(const std::vector<Parameter*>& parameters) {
  return std::sqrt(nn::sum_of_squares(gradients_of(parameters)));
}

double clip_factor(double norm, double most) { return most > 0 && norm > most ? most / (norm + 1e-6) : 1.0; }

OptimizerState::OptimizerState(const TrainOptions& options, std::vector<Parameter*> parameters)
    : options_(options), schedule_(options.schedule()), parameters_(std::move(parameters)) {
  slots_ =
      options.optimizer == Optimizer::adamw ? std::vector<std::string>{"m", "v"} : std::vector<std::string>{"buffer"};
  memory_.resize(slots_.size());
  for (auto& slot : memory_) {
    for (const Parameter* parameter : parameters_) {
      slot.emplace_back(parameter->value.shape(), DType::float32, parameter->value.device());
    }
  }
}

void OptimizerState::update(int64_t step, double gradient_factor) {
  std::set<double> rate_factors;
  for (const Parameter* parameter : parameters_) rate_factors.insert(parameter->rate_factor);
  for (const double rate_factor : rate_factors) update_those(rate_factor, step, static_cast<float>(gradient_factor));
}

void OptimizerState::update_those(double rate_factor, int64_t step, float gradient_factor) {
  const auto rate_at = [&](int64_t at) { return static_cast<float>(rate_factor * schedule_.at(at)); };
  const auto decay = static_cast<float>(options_.weight_decay);
  nn::Tensors values, gradients;
  std::vector<nn::Tensors> memory(memory_.size());
  std::vector<bool> decays;
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& parameter = *parameters_[i];
    if (parameter.rate_factor != rate_factor) continue;
    values.push_back(parameter.value);
    gradients.push_back(parameter.gradient);
    for (size_t slot = 0; slot < memory.size(); ++slot) memory[slot].push_back(memory_[slot][i]);
    decays.push_back(parameter.decays);
  }
  if (options_.optimizer == Optimizer::adamw) {
    const nn::AdamW rates{rate_at(step), static_cast<float>(options_.beta1), static_cast<float>(options_.beta2),
                          static_cast<float>(options_.eps), decay};
    nn::adamw(values, gradients, memory[0], memory[1], decays, rates, step + 1, gradient_factor);
  } else {
    const nn::Nag rates{rate_at(step), rate_at(step > 0 ? step - 1 : 0), static_cast<float>(options_.momentum), decay};
    nn::nag(values, gradients, memory[0], decays, rates, gradient_factor);
  }
}

std::vector<formats::NamedTensor> OptimizerState::tensors() const {
  std::vector<formats::NamedTensor> all;
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      all.push_back({slots_[slot] + "." + parameters_[i]->name, memory_[slot][i]});
    }
  }
  return all;
}

}  // namespace alibi::training
