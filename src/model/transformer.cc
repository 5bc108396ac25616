// Making a Transformer: its parameters, and the attention its position method asks for.
#include "alibi/transformer.h"

#include <algorithm>
#include <limits>

#include "core/check.h"
#include "model/parameters.h"
#include "model/transformer_state.h"

namespace alibi {

Transformer::State::State(const TransformerConfig& config_in, uint64_t seed)
    : TransformerLayout(config_in), config(config_in) {
  for (const ParameterSpec& spec : specs) parameters.push_back(spec.make(Random(seed, mix(0x1417, parameters.size()))));
  attention.causal = config.causal;
  if (config.position == Position::alibi) {
    attention.tolerance = config.tolerance;
    attention.slopes = slopes(config.heads, config.alibi_bias_max);
    const size_t heads = static_cast<size_t>(config.heads);
    if (!config.causal && config.bidirectional == Bidirectional::one_sided) {
      constexpr float closed = std::numeric_limits<float>::infinity();
      const std::vector<float> half = slopes((config.heads + 1) / 2, config.alibi_bias_max);
      attention.slopes_after.resize(heads);
      for (size_t h = 0; h < heads; ++h) {
        attention.slopes[h] = h % 2 == 0 ? half[h / 2] : closed;
        attention.slopes_after[h] = h % 2 == 0 ? closed : half[h / 2];
      }
    } else if (!config.causal && config.bidirectional == Bidirectional::two_slopes) {
      const std::vector<float> both = slopes(2 * config.heads, config.alibi_bias_max);
      attention.slopes_after.resize(heads);
      for (size_t h = 0; h < heads; ++h) {
        attention.slopes[h] = both[2 * h];
        attention.slopes_after[h] = both[2 * h + 1];
      }
    }
  }
}

AttentionOptions Transformer::State::attention_options(const StepSeed* step, size_t layer) const {
  AttentionOptions options = attention;
  if (mode.precision == Precision::bf16 && options.tolerance > 0) {
    options.tolerance = std::max(options.tolerance, 0x1p-11f);
  }
  if (config.position == Position::t5) options.buckets = BucketedBias{value(position_table), config.t5_max_distance};
  if (step != nullptr && config.attention_dropout > 0) {
    options.dropout = config.attention_dropout;
    options.dropout_seed = mix(step->seed, step->step, step->part, layer);
  }
  return options;
}

Transformer::Transformer(const TransformerConfig& config, uint64_t seed)
    : state_(std::make_unique<State>(config, seed)) {}
Transformer::~Transformer() = default;
Transformer::Transformer(Transformer&&) noexcept = default;
Transformer& Transformer::operator=(Transformer&&) noexcept = default;

const TransformerConfig& Transformer::config() const { return state_->config; }
std::vector<Parameter>& Transformer::parameters() { return state_->parameters; }
const std::vector<Parameter>& Transformer::parameters() const { return state_->parameters; }

void Transformer::zero_gradients() {
  std::vector<Parameter*> all;
  for (Parameter& parameter : state_->parameters) all.push_back(&parameter);
  alibi::zero_gradients(all);
}

void Transformer::release_activations() { state_->buffers = TrainingBuffers(); }

void Transformer::set_precision(Precision precision) {
  if (precision == state_->mode.precision) return;
  state_->mode.precision = precision;
  state_->buffers = TrainingBuffers();
  for (Parameter& parameter : state_->parameters) parameter.rounded = Tensor();
  weights_changed();
}
Precision Transformer::precision() const { return state_->mode.precision; }

void Transformer::set_recompute(bool recompute) {
  if (recompute != state_->mode.recompute) state_->buffers = TrainingBuffers();
  state_->mode.recompute = recompute;
}

void Transformer::weights_changed() {
  if (precision() != Precision::bf16) return;
  std::vector<Parameter*> operands;
  for (const State::Layer& layer : state_->layers) {
    for (const int index : {layer.qkv_weight, layer.out_weight, layer.up_weight, layer.down_weight}) {
      operands.push_back(&state_->parameters[static_cast<size_t>(index)]);
    }
  }
  round_operands(operands);
}

}  // namespace alibi
