#include "alibi/train.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <numbers>

#include "core/check.h"
#include "nn/flat.h"
#include "train/batches.h"

namespace alibi {

double Schedule::at(int64_t step) const {
  if (step < warmup_steps) return peak * static_cast<double>(step + 1) / static_cast<double>(warmup_steps);
  const double span = static_cast<double>(std::max<int64_t>(1, steps - warmup_steps));
  const double progress = std::min(1.0, static_cast<double>(step - warmup_steps) / span);
  return peak * (final_fraction + (1 - final_fraction) * 0.5 * (1 + std::cos(std::numbers::pi * progress)));
}

void TrainOptions::validate() const {
  check_usage(length >= 1, "[train] the length is {}, expected at least 1", length);
  check_usage(tokens >= 1, "[train] {} tokens to train on, expected at least 1", tokens);
  check_usage(batch_tokens >= 1 && micro_batch_tokens >= 1,
              "[train] batch_tokens is {} and micro_batch_tokens {}, expected at least 1", batch_tokens,
              micro_batch_tokens);
  check_usage(std::isfinite(learning_rate) && learning_rate > 0, "[train] the learning rate is {}, expected above 0",
              learning_rate);
  check_usage(warmup_fraction >= 0 && warmup_fraction <= 1, "[train] warmup_fraction is {}, expected 0 to 1",
              warmup_fraction);
  check_usage(final_fraction >= 0 && final_fraction <= 1, "[train] final_fraction is {}, expected 0 to 1",
              final_fraction);
  check_usage(std::isfinite(weight_decay) && weight_decay >= 0, "[train] weight_decay is {}, expected at least 0",
              weight_decay);
  check_usage(beta1 >= 0 && beta1 < 1 && beta2 >= 0 && beta2 < 1, "[train] betas are {} and {}, expected in [0, 1)",
              beta1, beta2);
  check_usage(eps > 0, "[train] eps is {}, expected above 0", eps);
  check_usage(std::isfinite(clip) && clip >= 0, "[train] clip is {}, expected at least 0", clip);
}

int64_t TrainOptions::steps() const { return std::max<int64_t>(1, tokens / batch_tokens); }

namespace {

using Clock = std::chrono::steady_clock;

double seconds_since(Clock::time_point start) { return std::chrono::duration<double>(Clock::now() - start).count(); }

/// The running means of AdamW, one pair for each parameter.
class AdamWState {
 public:
  explicit AdamWState(const std::vector<Parameter*>& parameters) {
    for (const Parameter* parameter : parameters) {
      first_.emplace_back(parameter->value.shape());
      second_.emplace_back(parameter->value.shape());
    }
  }

  void update(const std::vector<Parameter*>& parameters, const nn::AdamW& rates, int64_t step, float gradient_factor) {
    for (size_t i = 0; i < parameters.size(); ++i) {
      nn::AdamW own = rates;
      if (!parameters[i]->decays) own.weight_decay = 0;
      nn::adamw(flat(parameters[i]->value), flat(parameters[i]->gradient), flat(first_[i]), flat(second_[i]), own, step,
                gradient_factor);
    }
  }

 private:
  static std::span<float> flat(const Tensor& tensor) {
    return {tensor.data<float>(), static_cast<size_t>(tensor.elements())};
  }

  std::vector<Tensor> first_, second_;
};

double gradient_norm(const std::vector<Parameter*>& parameters) {
  double sum = 0;
  for (const Parameter* parameter : parameters) {
    sum += nn::sum_of_squares(parameter->gradient.data<float>(), parameter->gradient.elements());
  }
  return std::sqrt(sum);
}

}  // namespace

TrainResult train(LanguageModel& model, std::span<const int32_t> tokens, const TrainOptions& options,
                  const std::function<void(const TrainStatus&)>& on_step) {
  options.validate();
  check(model.config().transformer.causal,
        "[train] the model is an encoder; next-token prediction needs a causal transformer");
  BlockOrder order(tokens, options.length, model.tokenizer().end_of_text(), options.seed);
  const int64_t blocks_per_step = std::max<int64_t>(1, options.batch_tokens / options.length);
  const int64_t blocks_at_once = std::max<int64_t>(1, options.micro_batch_tokens / options.length);
  const int64_t steps = options.steps();
  const Schedule schedule{options.learning_rate,
                          static_cast<int64_t>(std::ceil(options.warmup_fraction * static_cast<double>(steps))), steps,
                          options.final_fraction};
  const std::vector<Parameter*> parameters = model.parameters();
  model.set_train_length(options.length);
  AdamWState optimizer(parameters);

  TrainResult result;
  const Clock::time_point start = Clock::now();
  double recent_seconds = 0, recent_tokens = 0;  // fading sums, for a speed that follows the machine
  for (int64_t step = 0; step < steps; ++step) {
    const Clock::time_point step_start = Clock::now();
    std::vector<int64_t> blocks;
    int64_t step_tokens = 0;
    for (int64_t i = 0; i < blocks_per_step; ++i) {
      blocks.push_back(order.block_at(step * blocks_per_step + i));
      step_tokens += order.length_of(blocks.back());
    }
    model.zero_gradients();
    double loss = 0;
    uint64_t part = 0;
    for (size_t begin = 0; begin < blocks.size(); ++part) {
      // As many blocks at once as fit; the stream's last, shorter block goes alone.
      size_t end = begin + 1;
      while (end < blocks.size() && static_cast<int64_t>(end - begin) < blocks_at_once &&
             order.length_of(blocks[end]) == order.length_of(blocks[begin])) {
        ++end;
      }
      const Batch batch = order.batch(std::span(blocks).subspan(begin, end - begin));
      loss += model.accumulate_gradients(batch.ids, batch.targets, 1.0f / static_cast<float>(step_tokens),
                                         {options.seed, static_cast<uint64_t>(step), part});
      begin = end;
    }
    loss /= static_cast<double>(step_tokens);
    const double norm = gradient_norm(parameters);
    check(std::isfinite(loss) && std::isfinite(norm),
          "[train] step {}: the loss is {} and the gradient norm {}; nothing was updated. Try a lower learning rate "
          "than {} or a longer warmup",
          step + 1, loss, norm, options.learning_rate);
    const double rate = schedule.at(step);
    const double factor = options.clip > 0 && norm > options.clip ? options.clip / norm : 1.0;
    const nn::AdamW rates{static_cast<float>(rate), static_cast<float>(options.beta1),
                          static_cast<float>(options.beta2), static_cast<float>(options.eps),
                          static_cast<float>(options.weight_decay)};
    optimizer.update(parameters, rates, step + 1, static_cast<float>(factor));

    result.tokens += step_tokens;
    result.loss.push_back(static_cast<float>(loss));
    recent_seconds = 0.9 * recent_seconds + seconds_since(step_start);
    recent_tokens = 0.9 * recent_tokens + static_cast<double>(step_tokens);
    if (on_step) {
      TrainStatus status;
      status.step = step + 1;
      status.steps = steps;
      status.tokens = result.tokens;
      status.loss = loss;
      status.learning_rate = rate;
      status.gradient_norm = norm;
      status.seconds = seconds_since(start);
      status.tokens_per_second = recent_tokens / recent_seconds;
      status.seconds_left = static_cast<double>(steps - step - 1) * status.seconds / static_cast<double>(step + 1);
      on_step(status);
    }
  }
  result.steps = steps;
  result.seconds = seconds_since(start);
  result.tokens_per_second = static_cast<double>(result.tokens) / result.seconds;
  return result;
}

}  // namespace alibi
