#include "train/optimizer.h"

#include <cmath>
#include <span>
#include <utility>

#include "nn/flat.h"
#include "nn/nag.h"

namespace alibi {
namespace {

std::span<float> flat(const Tensor& tensor) { return {tensor.data<float>(), static_cast<size_t>(tensor.elements())}; }

}  // namespace

double gradient_norm(const std::vector<Parameter*>& parameters) {
  double sum = 0;
  for (const Parameter* parameter : parameters) {
    sum += nn::sum_of_squares(parameter->gradient.data<float>(), parameter->gradient.elements());
  }
  return std::sqrt(sum);
}

double clip_factor(double norm, double most) { return most > 0 && norm > most ? most / (norm + 1e-6) : 1.0; }

OptimizerState::OptimizerState(const TrainOptions& options, std::vector<Parameter*> parameters)
    : options_(options), schedule_(options.schedule()), parameters_(std::move(parameters)) {
  slots_ =
      options.optimizer == Optimizer::adamw ? std::vector<std::string>{"m", "v"} : std::vector<std::string>{"buffer"};
  memory_.resize(slots_.size());
  for (auto& slot : memory_) {
    for (const Parameter* parameter : parameters_) slot.emplace_back(parameter->value.shape());
  }
}

void OptimizerState::update(int64_t step, double gradient_factor) {
  const auto rate = static_cast<float>(schedule_.at(step));
  const auto previous_rate = static_cast<float>(schedule_.at(step > 0 ? step - 1 : 0));
  const auto factor = static_cast<float>(gradient_factor);
  for (size_t i = 0; i < parameters_.size(); ++i) {
    const Parameter& parameter = *parameters_[i];
    const auto decay = static_cast<float>(parameter.decays ? options_.weight_decay : 0);
    const auto value = flat(parameter.value), gradient = flat(parameter.gradient);
    if (options_.optimizer == Optimizer::adamw) {
      const nn::AdamW rates{rate, static_cast<float>(options_.beta1), static_cast<float>(options_.beta2),
                            static_cast<float>(options_.eps), decay};
      nn::adamw(value, gradient, flat(memory_[0][i]), flat(memory_[1][i]), rates, step + 1, factor);
    } else {
      const nn::Nag rates{rate, previous_rate, static_cast<float>(options_.momentum), decay};
      nn::nag(value, gradient, flat(memory_[0][i]), rates, factor);
    }
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
