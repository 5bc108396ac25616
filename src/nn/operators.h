// The table of this folder's operators for devices other than the CPU. Each operator begins with
//   if (ran_elsewhere(&Operators::add, "add", a, b, y)) return;
// and continues for tensors of the CPU. No code in higher layers accesses the elements of a tensor.
#pragma once

#include <type_traits>
#include <utility>

#include "core/check.h"
#include "core/device.h"
#include "nn/activation.h"
#include "nn/adaptive_input.h"
#include "nn/adaptive_softmax.h"
#include "nn/cross_entropy.h"
#include "nn/elementwise.h"
#include "nn/embedding.h"
#include "nn/foreach.h"
#include "nn/linear.h"
#include "nn/norm.h"
#include "nn/positions.h"
#include "nn/reduce.h"
#include "nn/scale.h"

namespace alibi::nn {

/// Null if the device does not have the operator. Arguments that are not tensors are in the CPU's memory. So are
/// results that are returned or written to a span.
struct Operators {
  decltype(&nn::activate) activate = nullptr;
  decltype(&nn::activate_backward) activate_backward = nullptr;
  decltype(&nn::adaptive_input) adaptive_input = nullptr;
  decltype(&nn::adaptive_input_backward) adaptive_input_backward = nullptr;
  decltype(&nn::adaptive_cross_entropy) adaptive_cross_entropy = nullptr;
  decltype(&nn::adaptive_cross_entropy_with_gradients) adaptive_cross_entropy_with_gradients = nullptr;
  decltype(&nn::adaptive_log_probabilities) adaptive_log_probabilities = nullptr;
  decltype(&nn::linear_cross_entropy) linear_cross_entropy = nullptr;
  decltype(&nn::linear_cross_entropy_with_gradients) linear_cross_entropy_with_gradients = nullptr;
  decltype(&nn::add) add = nullptr;
  void (*convert)(const Tensor&, Tensor&) = nullptr;
  decltype(&nn::dropout) dropout = nullptr;
  decltype(&nn::dropout_backward) dropout_backward = nullptr;
  decltype(&nn::embedding) embedding = nullptr;
  decltype(&nn::embedding_backward) embedding_backward = nullptr;
  decltype(&nn::exp2) exp2 = nullptr;
  decltype(&nn::exp2_backward) exp2_backward = nullptr;
  decltype(&nn::matmul) matmul = nullptr;
  decltype(&nn::linear) linear = nullptr;
  decltype(&nn::linear_backward) linear_backward = nullptr;
  decltype(&nn::norm) norm = nullptr;
  decltype(&nn::norm_backward) norm_backward = nullptr;
  decltype(&nn::residual_norm) residual_norm = nullptr;
  decltype(&nn::normalize) normalize = nullptr;
  decltype(&nn::residual_norm_backward) residual_norm_backward = nullptr;
  decltype(&nn::scale) scale = nullptr;
  decltype(&nn::clamp) clamp = nullptr;
  decltype(&nn::clamp_backward) clamp_backward = nullptr;
  decltype(&nn::copy_columns) copy_columns = nullptr;
  decltype(&nn::set_columns) set_columns = nullptr;
  decltype(&nn::add_column_sums) add_column_sums = nullptr;
  decltype(&nn::rotary) rotary = nullptr;
  decltype(&nn::rotary_backward) rotary_backward = nullptr;
  decltype(&nn::sinusoids) sinusoids = nullptr;
  decltype(&nn::add_positions) add_positions = nullptr;
  decltype(&nn::add_positions_backward) add_positions_backward = nullptr;
  // Operators over many tensors at once (foreach.h).
  void (*fill)(const Tensors&, float) = nullptr;
  void (*convert_many)(const Tensors&, const Tensors&) = nullptr;
  double (*sum_of_squares)(const Tensors&) = nullptr;
  void (*adamw)(const Tensors&, const Tensors&, const Tensors&, const Tensors&, const std::vector<bool>&, const AdamW&,
                int64_t, float) = nullptr;
  void (*nag)(const Tensors&, const Tensors&, const Tensors&, const std::vector<bool>&, const Nag&, float) = nullptr;
};

/// The tables of this build. The CPU has no table.
core::PerDevice<Operators>& device_operators();

/// Finds the device of the tensors among the arguments.
class CommonDevice {
 public:
  explicit CommonDevice(const char* operation) : operation_(operation) {}
  Device device() const { return first_ != nullptr ? first_->device() : Device::cpu; }

  void look_at(const Tensor& tensor);
  void look_at(const Tensor* tensor) {
    if (tensor != nullptr) look_at(*tensor);
  }
  void look_at(const Tensors& tensors) {
    for (const Tensor& tensor : tensors) look_at(tensor);
  }
  void look_at(const AdaptiveWeights& weights);
  void look_at(const NormParameters& norm);
  void look_at(const NormStatistics& statistics);
  template <class Other>
  requires(!std::is_pointer_v<Other>) void look_at(const Other&) {}

 private:
  const char* operation_;
  const Tensor* first_ = nullptr;
};

/// The operator for the device of the arguments, or null for the CPU. Throws Error if they are on several devices, or
/// if the device does not have the operator.
template <class Function, class... Arguments>
Function* elsewhere(Function* Operators::*which, const char* operation, const Arguments&... arguments) {
  CommonDevice place(operation);
  (place.look_at(arguments), ...);
  if (place.device() == Device::cpu) return nullptr;
  const Operators* const operators = device_operators().of(place.device());
  check(operators != nullptr && operators->*which != nullptr,
        "[{}] this build of alibi does not support this operator on '{}'; copy the tensors with to(Device::cpu)",
        operation, name_of(place.device()));
  return operators->*which;
}

/// Returns true if the arguments are on a device other than the CPU. The operator has then been run there.
template <class... Parameters, class... Arguments>
bool ran_elsewhere(void (*Operators::*which)(Parameters...), const char* operation, Arguments&&... arguments) {
  auto* const there = elsewhere(which, operation, arguments...);
  if (there != nullptr) there(std::forward<Arguments>(arguments)...);
  return there != nullptr;
}

}  // namespace alibi::nn
