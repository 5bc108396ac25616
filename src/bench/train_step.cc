#include "bench/train_step.h"

#include <algorithm>
#include <string_view>

#include "bench/attention_inputs.h"
#include "core/check.h"
#include "nn/cross_entropy.h"
#include "nn/linear.h"
#include "train/update.h"

namespace alibi::bench {

std::vector<int32_t> golden_ratio_tokens(int64_t count, int64_t vocab_size) {
  constexpr uint32_t ratio = 2654435769u;  // 2^32 * (sqrt(5) - 1) / 2
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  for (size_t i = 0; i < tokens.size(); ++i) {
    const uint32_t fraction = static_cast<uint32_t>(i) * ratio;
    tokens[i] = static_cast<int32_t>((uint64_t{fraction} * static_cast<uint64_t>(vocab_size)) >> 32);
  }
  return tokens;
}

TrainOptions step_options(int64_t length, int64_t batch_tokens, int64_t micro_batch_tokens) {
  constexpr int64_t steps = 1'000'000;
  TrainOptions options;
  options.length = length;
  options.batch_tokens = std::max<int64_t>(1, batch_tokens / length) * length;
  options.micro_batch_tokens = micro_batch_tokens;
  options.tokens = steps * options.batch_tokens;
  return options;
}

TrainStep::TrainStep(const LanguageModelConfig& config, const TrainOptions& options)
    : options_(options),
      model_(config, options.seed),
      tokens_(golden_ratio_tokens(blocks_per_update(options) * options.length, config.vocab_size)),
      order_(tokens_, options.length, config.vocab_size - 1, options.seed),
      parameters_(model_.parameters()),
      optimizer_(options_, parameters_) {
  check_usage(!config.adaptive, "[bench train] the model has an adaptive softmax, expected one table of tokens");
  model_.set_precision(options.precision);
  model_.set_recompute(options.recompute);
}

double TrainStep::run() {
  const UpdateLoss update = compute_gradients(model_, order_, step_, options_);
  optimizer_.update(step_, clip_factor(gradient_norm(parameters_), options_.clip));
  model_.weights_changed();
  ++step_;
  return update.loss;
}

Tensor StepProducts::part(const Tensor& pool, int64_t rows, int64_t columns) {
  return pool.slice(0, 0, rows * columns).reshape({rows, columns});
}

StepProducts::StepProducts(TrainStep& step) {
  const TrainOptions& options = step.options();
  const int64_t blocks = blocks_per_update(options);
  const int64_t at_once = std::max<int64_t>(1, options.micro_batch_tokens / options.length);
  for (int64_t begin = 0; begin < blocks; begin += at_once) {
    rows_.push_back(std::min(at_once, blocks - begin) * options.length);
  }

  int64_t widest_input = 0, widest_output = 0;
  for (Parameter* parameter : step.model().parameters()) {
    const std::string_view name = parameter->name;
    if (name == "wte.weight") head_ = parameter;
    const bool is_matrix = name.starts_with("blocks.") && parameter->value.axes() == 2;
    if (!is_matrix) continue;
    const bool again =
        options.recompute && (name.ends_with("attn.Wqkv.weight") || name.ends_with("ffn.up_proj.weight"));
    layers_.push_back({parameter, again ? 2 : 1});
    widest_output = std::max(widest_output, parameter->value.size(0));
    widest_input = std::max(widest_input, parameter->value.size(1));
  }
  const int64_t vocab = head_->value.size(0), width = head_->value.size(1), rows = rows_.front();
  widest_input = std::max(widest_input, width);
  const DType type = head_->operand().dtype();
  inputs_ = normal_tensor({rows * widest_input}, options.seed, 0).to(type);
  outputs_ = Tensor({rows * std::max<int64_t>(widest_output, 1)}, type);
  dinputs_ = Tensor({rows * widest_input}, type);
  const int64_t chunk = std::min(rows, nn::cross_entropy_chunk_rows(vocab));
  logits_ = Tensor({chunk * vocab});
  dlogits_ = type == DType::float32 ? logits_ : normal_tensor({chunk * vocab}, options.seed, 1).to(type);
}

void StepProducts::run() {
  for (const int64_t rows : rows_) {
    run_layers(rows);
    run_head(rows);
  }
}

void StepProducts::run_layers(int64_t rows) {
  for (const Matrix& matrix : layers_) {
    Parameter& weight = *matrix.parameter;
    const int64_t out = weight.value.size(0), in = weight.value.size(1);
    const Tensor x = part(inputs_, rows, in);
    Tensor y = part(outputs_, rows, out), dx = part(dinputs_, rows, in);
    for (int pass = 0; pass < matrix.forward_passes; ++pass) nn::linear(x, weight.operand(), nullptr, y);
    nn::linear_backward(y, x, weight.operand(), &dx, &weight.gradient, nullptr);
  }
}

void StepProducts::run_head(int64_t rows) {
  const int64_t vocab = head_->value.size(0), width = head_->value.size(1), chunk = logits_.elements() / vocab;
  for (int64_t begin = 0; begin < rows; begin += chunk) {
    const int64_t count = std::min(chunk, rows - begin);
    const Tensor states = part(inputs_, count, width), dlogits = part(dlogits_, count, vocab);
    Tensor logits = part(logits_, count, vocab), dstates = part(dinputs_, count, width);
    nn::matmul(states, false, head_->operand(), true, logits, false);
    nn::matmul(dlogits, false, head_->operand(), false, dstates, false);
    nn::matmul(dlogits, true, states, false, head_->gradient, true);
  }
}

double StepProducts::flops() const {
  double per_row = 3 * 2 * static_cast<double>(head_->value.elements());
  for (const Matrix& matrix : layers_) {
    per_row += (matrix.forward_passes + 2) * 2 * static_cast<double>(matrix.parameter->value.elements());
  }
  double rows = 0;
  for (const int64_t count : rows_) rows += static_cast<double>(count);
  return rows * per_row;
}

}  // namespace alibi::bench
