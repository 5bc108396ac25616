// Training a language model on a stream of tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "alibi/language_model.h"

namespace alibi {

/// Learning-rate schedule: linear warmup, then a cosine from the peak down to final_fraction of it.
struct Schedule {
  double peak = 1e-3;
  int64_t warmup_steps = 0;
  int64_t steps = 1;
  double final_fraction = 0.1;
  /// Rate of update `step` (counted from 0).
  double at(int64_t step) const;
};

struct TrainOptions {
  int64_t length = 128;         ///< tokens of a block: the training length
  int64_t tokens = 1'000'000;   ///< tokens to train on in all; updates = tokens / batch_tokens, at least 1
  int64_t batch_tokens = 8192;  ///< tokens of an update, whatever the length (rounded to whole blocks, at least one)
  int64_t micro_batch_tokens = 8192;  ///< at most this many at once; the gradients of the parts are summed
  double learning_rate = 2e-3;        ///< peak
  double warmup_fraction = 0.05;      ///< part of the updates with rising rate
  double final_fraction = 0.1;        ///< of the peak, at the end of the cosine
  double weight_decay = 0.1;          ///< AdamW, matrices only
  double beta1 = 0.9;
  double beta2 = 0.98;
  double eps = 1e-8;
  double clip = 1.0;  ///< largest global norm of the gradient; 0: no clipping
  uint64_t seed = 0;  ///< order of the blocks, dropout

  void validate() const;
  int64_t steps() const;
};

struct TrainStatus {
  int64_t step = 0;  ///< updates done
  int64_t steps = 0;
  int64_t tokens = 0;
  double loss = 0;  ///< mean nll (nats) of this update's tokens
  double learning_rate = 0;
  double gradient_norm = 0;
  double seconds = 0;
  double tokens_per_second = 0;  ///< over the last updates
  double seconds_left = 0;
};

struct TrainResult {
  int64_t tokens = 0;
  int64_t steps = 0;
  double seconds = 0;
  double tokens_per_second = 0;
  std::vector<float> loss;  ///< mean nll of each update
};

/// Trains on the stream cut into contiguous blocks of `length` (the last may be shorter): targets are the block, inputs
/// the same shifted by one IN THE STREAM (block k starts with the last token of block k - 1; the stream starts after an
/// end of text). Each token is predicted once per epoch; the order of the blocks is shuffled from (seed, epoch).
/// AdamW (Loshchilov & Hutter 2019), gradients averaged over the update's tokens, clipped by global norm.
/// `on_step` may be empty. Throws Error naming the step if the loss stops being a number.
/// Deterministic: same model, tokens and options give the same bits at any number of threads.
TrainResult train(LanguageModel& model, std::span<const int32_t> tokens, const TrainOptions& options,
                  const std::function<void(const TrainStatus&)>& on_step = {});

}  // namespace alibi
