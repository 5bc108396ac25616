#include "bench/train_step.h"

#include <algorithm>

#include "core/check.h"
#include "train/batches.h"

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
  constexpr int64_t steps = 1'000'000, most = INT32_MAX;
  check_usage(batch_tokens <= most, "[bench train] batch_tokens is {}, expected at most {}", batch_tokens, most);
  TrainOptions options;
  options.train_length = length;
  options.batch_tokens = std::max<int64_t>(1, batch_tokens / length) * length;
  options.micro_batch_tokens = micro_batch_tokens;
  options.train_tokens = steps * options.batch_tokens;
  return options;
}

TrainStep::TrainStep(const LanguageModelConfig& config, const TrainOptions& options)
    : options_(options),
      model_(config, options.seed),
      tokens_(golden_ratio_tokens(training::blocks_per_update(options) * options.train_length, config.vocab_size)),
      order_(tokens_, options.train_length, config.vocab_size - 1, options.seed),
      parameters_(model_.parameters()),
      optimizer_(options_, parameters_) {
  check_usage(!config.adaptive, "[bench train] the model has an adaptive softmax, expected a single output matrix");
  model_.set_precision(options.precision);
  model_.set_recompute(options.recompute);
}

double TrainStep::run() {
  const training::UpdateLoss update = training::compute_gradients(model_, order_, step_, options_);
  optimizer_.update(step_, training::clip_factor(training::gradient_norm(parameters_), options_.clip));
  model_.weights_changed();
  ++step_;
  return update.loss;
}

}  // namespace alibi::bench
