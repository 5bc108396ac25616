#include "train/optimizer.h"

#include <cmath>
#include <optional>
#include <set>
#include <span>
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
  for (size_t i = 0; i < parameters_.size(); ++i) parts_.push_back({i, 0, parameters_[i]->value.elements()});
  allocate();
}

OptimizerState::OptimizerState(const TrainOptions& options, std::vector<Parameter*> parameters, const Owners& owners,
                               int rank)
    : options_(options),
      schedule_(options.schedule()),
      parameters_(std::move(parameters)),
      owners_(&owners),
      parts_(owners.parts_of(rank)) {
  allocate();
}

void OptimizerState::allocate() {
  slots_ =
      options_.optimizer == Optimizer::adamw ? std::vector<std::string>{"m", "v"} : std::vector<std::string>{"buffer"};
  memory_.resize(slots_.size());
  for (auto& slot : memory_) {
    for (const ParameterRange& part : parts_) {
      const Tensor& value = parameters_[part.parameter]->value;
      slot.emplace_back(owners_ == nullptr ? value.shape() : Shape{part.size()}, DType::float32);
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
  for (size_t i = 0; i < parts_.size(); ++i) {
    const Parameter& parameter = *parameters_[parts_[i].parameter];
    if (parameter.rate_factor != rate_factor) continue;
    values.push_back(owners_ == nullptr ? parameter.value : part_of(parameter.value, parts_[i]));
    gradients.push_back(owners_ == nullptr ? parameter.gradient : part_of(parameter.gradient, parts_[i]));
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

std::string OptimizerState::name_of(size_t slot, size_t parameter) const {
  return slots_[slot] + "." + parameters_[parameter]->name;
}

std::vector<formats::NamedTensor> OptimizerState::tensors() const {
  std::vector<formats::NamedTensor> all;
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    for (size_t i = 0; i < parts_.size(); ++i) all.push_back({name_of(slot, parts_[i].parameter), memory_[slot][i]});
  }
  return all;
}

void OptimizerState::load(const formats::WeightSource& file) {
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    Tensor whole;
    std::optional<size_t> loaded;  // the parameter whose state `whole` is
    for (size_t i = 0; i < parts_.size(); ++i) {
      const ParameterRange& part = parts_[i];
      const std::string name = name_of(slot, part.parameter);
      if (owners_ == nullptr) {
        file.load_finite_into(name, memory_[slot][i]);
        continue;
      }
      if (loaded != part.parameter) {
        whole = Tensor::empty(parameters_[part.parameter]->value.shape());
        file.load_finite_into(name, whole);
        loaded = part.parameter;
      }
      memory_[slot][i].copy_from(part_of(whole, part));
    }
  }
}

std::vector<formats::StreamedTensor> OptimizerState::to_write(ranks::Group* group) const {
  std::vector<formats::StreamedTensor> all;
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    for (size_t i = 0; i < parameters_.size(); ++i) {
      all.push_back({name_of(slot, i), "F32", parameters_[i]->value.shape(), [this, group, slot, i] {
                       return group == nullptr ? memory_[slot][i] : gathered(*group, slot, i);
                     }});
    }
  }
  return all;
}

void OptimizerState::send_all(ranks::Group& group) const {
  for (size_t slot = 0; slot < slots_.size(); ++slot) {
    ranks::Transfers sent;
    for (size_t i = 0; i < parts_.size(); ++i) {
      const Tensor& values = memory_[slot][i];
      sent.push_back(
          group.send(0, ranks::Tag::optimizer, std::as_bytes(std::span(values.data<float>(), values.elements()))));
    }
    ranks::wait(sent);
  }
}

/// The state of a whole parameter, on rank 0.
Tensor OptimizerState::gathered(ranks::Group& group, size_t slot, size_t parameter) const {
  Tensor whole = Tensor::empty(parameters_[parameter]->value.shape());
  ranks::Transfers received;
  for (int rank = 0; rank < group.size(); ++rank) {
    for (const ParameterRange& part : parts_within(owners_->parts_of(rank), {parameter})) {
      if (rank == group.rank()) continue;
      float* to = whole.data<float>() + part.begin;
      received.push_back(group.receive(rank, ranks::Tag::optimizer,
                                       std::as_writable_bytes(std::span(to, static_cast<size_t>(part.size())))));
    }
  }
  for (size_t i = 0; i < parts_.size(); ++i) {
    if (parts_[i].parameter == parameter) part_of(whole, parts_[i]).copy_from(memory_[slot][i]);
  }
  ranks::wait(received);
  return whole;
}

}  // namespace alibi::training
