#include "bench/step_products.h"

#include <algorithm>

#include "bench/attention_inputs.h"
#include "core/check.h"
#include "nn/cross_entropy.h"
#include "nn/linear.h"
#include "train/batches.h"

namespace alibi::bench {

StepProducts::StepProducts(LanguageModel& model, const TrainOptions& options, uint64_t seed)
    : recompute_(options.recompute) {
  for (Parameter* parameter : model.parameters()) {
    if (!parameter->is_operand) continue;
    if (parameter->name.starts_with("blocks.")) {
      layers_.push_back(parameter);
    } else {
      check(head_ == nullptr,
            "[bench train] {} and {} are both matrices outside the blocks, expected a single output matrix",
            parameter->name, head_ == nullptr ? "" : head_->name);
      head_ = parameter;
    }
  }
  check(head_ != nullptr, "[bench train] the model has no output matrix, expected one");

  const int64_t rows = training::blocks_per_update(options) * options.train_length;
  const int64_t max_rows =
      std::max<int64_t>(1, options.micro_batch_tokens / options.train_length) * options.train_length;
  for (int64_t begin = 0; begin < rows; begin += max_rows) {
    micro_batches_.push_back(std::min(max_rows, rows - begin));
  }

  int64_t in = head_->value.size(1), out = 0;
  for (const Parameter* weight : layers_) {
    out = std::max(out, weight->value.size(0));
    in = std::max(in, weight->value.size(1));
  }
  const DType type = head_->operand().dtype();
  const int64_t logits = nn::cross_entropy_chunk_rows(head_->value.size(0)) * head_->value.size(0);
  x_ = normal_tensor({micro_batches_.front() * in}, seed, 0).to(type);
  y_ = normal_tensor({std::max(micro_batches_.front() * out, logits)}, seed, 1).to(type);
  dx_ = Tensor({micro_batches_.front() * in}, type);
  logits_ = Tensor({logits});
}

Tensor StepProducts::matrix(const Tensor& memory, int64_t rows, int64_t columns) const {
  return memory.slice(0, 0, rows * columns).reshape({rows, columns});
}

bool StepProducts::is_recomputed(const Parameter& weight) const {
  // The outputs of these two layers are sums of the residual stream, which are kept.
  return recompute_ && weight.name.find("out_proj") == std::string::npos &&
         weight.name.find("down_proj") == std::string::npos;
}

void StepProducts::run_layer(const Parameter& weight, int64_t rows) {
  Tensor y = matrix(y_, rows, weight.value.size(0));
  nn::linear(matrix(x_, rows, weight.value.size(1)), weight.operand(), nullptr, y);
}

void StepProducts::run_layer_backward(Parameter& weight, int64_t rows) {
  Tensor dx = matrix(dx_, rows, weight.value.size(1));
  nn::linear_backward(matrix(y_, rows, weight.value.size(0)), matrix(x_, rows, weight.value.size(1)), weight.operand(),
                      &dx, &weight.gradient, nullptr);
}

void StepProducts::run_head(int64_t rows) {
  const int64_t words = head_->value.size(0), width = head_->value.size(1);
  const int64_t most = nn::cross_entropy_chunk_rows(words);
  for (int64_t begin = 0; begin < rows; begin += most) {
    const int64_t count = std::min(most, rows - begin);
    const Tensor x = matrix(x_, count, width), dlogits = matrix(y_, count, words);
    Tensor logits = matrix(logits_, count, words), dx = matrix(dx_, count, width);
    nn::matmul(x, false, head_->operand(), true, logits, false);
    nn::matmul(dlogits, false, head_->operand(), false, dx, false);
    nn::matmul(dlogits, true, x, false, head_->gradient, true);
  }
}

void StepProducts::run() {
  for (const int64_t rows : micro_batches_) {
    for (const Parameter* weight : layers_) run_layer(*weight, rows);
    run_head(rows);
    for (auto weight = layers_.rbegin(); weight != layers_.rend(); ++weight) {
      if (is_recomputed(**weight)) run_layer(**weight, rows);
      run_layer_backward(**weight, rows);
    }
  }
}

double StepProducts::flops() const {
  double of_row = 3 * static_cast<double>(head_->value.elements());
  for (const Parameter* weight : layers_) {
    of_row += (is_recomputed(*weight) ? 4 : 3) * static_cast<double>(weight->value.elements());
  }
  double rows = 0;
  for (const int64_t count : micro_batches_) rows += static_cast<double>(count);
  return 2 * rows * of_row;
}

}  // namespace alibi::bench
