#include <algorithm>

#include "alibi/runtime.h"
#include "alibi/train.h"
#include "core/clock.h"
#include "core/parallel.h"
#include "core/product_rates.h"
#include "model/parameters.h"
#include "model/pass.h"
#include "nn/cross_entropy.h"
#include "nn/matmul_plan.h"
#include "nn/products.h"
#include "train/optimizer.h"

namespace alibi {
namespace {

constexpr int64_t float_bytes = sizeof(float);

/// Number of blocks in a micro-batch; must agree with compute_gradients().
int64_t blocks_at_once(const TrainOptions& options) {
  const int64_t update = std::max<int64_t>(1, options.batch_tokens / options.train_length);
  return std::min(update, std::max<int64_t>(1, options.micro_batch_tokens / options.train_length));
}

/// Bytes of operand copies and sums that the gradient of a weight [out, in] needs for `rows` rows.
int64_t product_copies(int64_t out, int64_t in, int64_t rows, Precision precision) {
  const DType dtype = precision == Precision::bf16 ? DType::bfloat16 : DType::float32;
  const nn::ProductShape shape{out, in, rows, false, false, true};
  return nn::plan_matmul(shape, nn::product_kernels(dtype)).elements_of_copies(shape) * float_bytes;
}

/// Bytes that attention needs for one layer in addition to its arguments.
int64_t attention_workspace(const TransformerConfig& config, int64_t blocks, int64_t length, Precision precision) {
  const int64_t queries = blocks * length * config.d_model;
  const int64_t keys = blocks * length * int64_t{config.key_heads()} * config.head_dim();
  if (precision == Precision::bf16 && core::prefers_bf16()) {
    // Forward: copies of keys and values in the order of the tiles. Backward: float32 sums of all three gradients,
    // unless spans of up to 1024 rows give enough tasks, each of which adds up a whole span.
    const bool needs_sums = length > 1024 || blocks * config.key_heads() < 16;
    return std::max<int64_t>(2 * keys * static_cast<int64_t>(sizeof(bfloat16)),
                             needs_sums ? (queries + 2 * keys) * float_bytes : 0);
  }
  // Float32 sums of the gradients of keys and values, as vector/backward.cc allocates them: for all key/value heads if
  // there are few, otherwise for those that the threads work on. A chunk of queries needs at least half of the keys.
  const int64_t groups = blocks * config.key_heads();
  const int64_t alive = groups < 8 ? groups : std::min<int64_t>(groups, threads() + 1);
  return 2 * keys * float_bytes / groups * alive;
}

/// Logits and their gradients are allocated for one chunk of rows.
int64_t logits_bytes(const LanguageModelConfig& config, int64_t rows, Precision precision) {
  int64_t widest = 0;
  for (const VocabularyBand& band : config.bands()) widest = std::max<int64_t>(widest, band.words);
  const int64_t chunk = std::min(rows, nn::cross_entropy_chunk_rows(widest));
  return chunk * widest * (precision == Precision::bf16 ? 6 : 4);
}

/// Time of a micro-batch of `blocks`: the fastest run after the first, which allocates memory and generates code. One
/// run is enough for a large model, because its runs hardly differ.
double seconds_of_micro_batch(LanguageModelConfig config, int layers, const TrainOptions& options, int64_t blocks,
                              int64_t length) {
  constexpr double enough = 1;
  config.transformer.layers = layers;
  LanguageModel model(config);
  model.set_precision(options.precision);
  model.set_recompute(options.recompute);
  model.zero_gradients();
  const Tensor ids({blocks, length}, DType::int32);
  double best = 0;
  for (uint64_t run = 0; run < 3 && best < enough; ++run) {
    const auto start = core::Clock::now();
    model.accumulate_gradients(ids, ids, 1, {0, run, 0});
    const double seconds = core::seconds_since(start);
    if (run == 1 || (run > 1 && seconds < best)) best = seconds;
  }
  return best;
}

}  // namespace

TrainPlan plan_training(const LanguageModelConfig& config, const TrainOptions& options) {
  const TransformerConfig& t = config.transformer;
  const bool rounds = options.precision == Precision::bf16;
  const int64_t blocks = blocks_at_once(options), rows = blocks * options.train_length, width = t.d_model;
  TrainPlan plan;
  const std::vector<model::ParameterSpec> specs = model::parameter_specs(config);
  plan.parameters = model::elements_of(specs);
  plan.updates = options.steps();
  plan.tokens = plan.updates * std::max<int64_t>(1, options.batch_tokens / options.train_length) * options.train_length;
  plan.flops_per_token = training_flops_per_token(config, options.train_length);
  plan.weights = plan.parameters * float_bytes;
  for (const model::ParameterSpec& spec : specs) {
    if (rounds && spec.is_operand) plan.weights += spec.elements() * static_cast<int64_t>(sizeof(bfloat16));
  }
  plan.gradients = plan.parameters * float_bytes;
  plan.optimizer = plan.parameters * float_bytes * (options.optimizer == Optimizer::adamw ? 2 : 1);

  const model::PassMode mode{options.precision, options.recompute ? model::Keep::sums : model::Keep::all};
  const model::PassMemory::Bytes memory = model::PassMemory::predict(t, mode, blocks, options.train_length);
  const int64_t activation_bytes = rounds ? static_cast<int64_t>(sizeof(bfloat16)) : float_bytes;
  plan.activations = memory.kept;
  // Only one of these workspaces is allocated at a time.
  int64_t passing = std::max(attention_workspace(t, blocks, options.train_length, options.precision),
                             logits_bytes(config, rows, options.precision));
  for (const model::ParameterSpec& spec : model::parameter_specs(t)) {
    if (!spec.is_operand) continue;
    passing = std::max(passing, product_copies(spec.shape[0], spec.shape[1], rows, options.precision));
  }
  // The embedded input, the final states and their gradient.
  plan.workspace = memory.scratch + rows * width * (float_bytes + 2 * activation_bytes) + passing;
  if (rounds) plan.workspace += threads() * nn::bytes_to_widen(DType::bfloat16);
  return plan;
}

double estimate_seconds(const LanguageModelConfig& config, const TrainOptions& options,
                        const std::function<void(double)>& progress) {
  int done = 0;
  const auto timed = [&](const LanguageModelConfig& part, int layers, int64_t blocks, int64_t length) {
    const double seconds = seconds_of_micro_batch(part, layers, options, blocks, length);
    if (progress) progress(++done / 3.0);
    return seconds / static_cast<double>(blocks * length);
  };
  // The rows are enough for matrix products to reach their full rate. A layer's time depends on the length; the time of
  // the vocabulary does not.
  const int64_t blocks = std::min(blocks_at_once(options), std::max<int64_t>(1, int64_t{1024} / options.train_length));
  const LanguageModelConfig few_words = with_vocab_size(config, std::min(config.vocab_size, 256));
  const double neither = timed(few_words, 0, blocks, options.train_length);
  const double layer = std::max(0.0, timed(few_words, 1, blocks, options.train_length) - neither);
  const int64_t length = std::min<int64_t>(options.train_length, 512);
  const double vocabulary = timed(config, 0, std::clamp<int64_t>(512 / length, 1, blocks), length);
  const TrainPlan plan = plan_training(config, options);
  // The update reads and writes every parameter, its gradient and its moments once: about 30 bytes at 10 GB/s.
  const double update = 3e-9 * static_cast<double>(plan.parameters);
  return static_cast<double>(plan.tokens) * (vocabulary + config.transformer.layers * layer) +
         static_cast<double>(plan.updates) * update;
}

}  // namespace alibi
