#include "train/optimizer.h"

#include <cmath>
#include <numeric>
#include <span>
#include <utility>

#include "core/pieces.h"
#include "nn/flat.h"
#include "nn/nag.h"

namespace alibi {
namespace {

/// The elements of a piece.
std::span<float> part(const Tensor& tensor, const Piece& piece) {
  return {tensor.data<float>() + piece.begin, static_cast<size_t>(piece.end - piece.begin)};
}

Pieces pieces_of(const std::vector<Parameter*>& parameters) {
  Pieces pieces(int64_t{1} << 15);
  for (const Parameter* parameter : parameters) pieces.add(parameter->value.elements());
  return pieces;
}

}  // namespace

double gradient_norm(const std::vector<Parameter*>& parameters) {
  const Pieces pieces = pieces_of(parameters);
  std::vector<double> squares(static_cast<size_t>(pieces.size()));
  parallel_for(pieces.size(), [&](int64_t i) {
    const Piece piece = pieces.at(i);
    const std::span<const float> gradient = part(parameters[piece.array]->gradient, piece);
    squares[static_cast<size_t>(i)] = nn::sum_of_squares(gradient.data(), static_cast<int64_t>(gradient.size()));
  });
  return std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0));
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
  const Pieces pieces = pieces_of(parameters_);
  parallel_for(pieces.size(), [&](int64_t task) {
    const Piece piece = pieces.at(task);
    const size_t i = piece.array;
    const Parameter& parameter = *parameters_[i];
    const auto decay = static_cast<float>(parameter.decays ? options_.weight_decay : 0);
    const auto value = part(parameter.value, piece), gradient = part(parameter.gradient, piece);
    if (options_.optimizer == Optimizer::adamw) {
      const nn::AdamW rates{rate, static_cast<float>(options_.beta1), static_cast<float>(options_.beta2),
                            static_cast<float>(options_.eps), decay};
      nn::adamw(value, gradient, part(memory_[0][i], piece), part(memory_[1][i], piece), rates, step + 1, factor);
    } else {
      const nn::Nag rates{rate, previous_rate, static_cast<float>(options_.momentum), decay};
      nn::nag(value, gradient, part(memory_[0][i], piece), rates, factor);
    }
  });
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
