#include "train/optimizer.h"

#include <cmath>
#include <utility>

#include "nn/many.h"

namespace alibi {
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
  const auto rate = static_cast<float>(schedule_.at(step));
  const auto previous_rate = static_cast<float>(schedule_.at(step > 0 ? step - 1 : 0));
  const auto factor = static_cast<float>(gradient_factor);
  const auto decay = static_cast<float>(options_.weight_decay);
  nn::Tensors values;
  std::vector<bool> decays;
  for (const Parameter* parameter : parameters_) {
    values.push_back(parameter->value);
    decays.push_back(parameter->decays);
  }
  const nn::Tensors gradients = gradients_of(parameters_);
  if (options_.optimizer == Optimizer::adamw) {
    const nn::AdamW rates{rate, static_cast<float>(options_.beta1), static_cast<float>(options_.beta2),
                          static_cast<float>(options_.eps), decay};
    nn::adamw(values, gradients, memory_[0], memory_[1], decays, rates, step + 1, factor);
  } else {
    const nn::Nag rates{rate, previous_rate, static_cast<float>(options_.momentum), decay};
    nn::nag(values, gradients, memory_[0], decays, rates, factor);
  }
}

std::vector<NamedTensor> OptimizerState::tensors() const {
  std::vector<NamedTensor> all;
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      all.push_back({slots_[slot] + "." + parameters_[i]->name, memory_[slot][i]});
    }
  }
  return all;
}

}  // namespace alibi
