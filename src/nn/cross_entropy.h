// Output projection and softmax cross-entropy together: the logits exist for one chunk of rows at a time.
#pragma once

#include <cstdint>
#include <span>

#include "alibi/tensor.h"

namespace alibi::nn {

/// Rows whose logits are in memory at a time: at most 1024, fewer if a row is long (64 MiB of logits), never below 64,
/// and up to 4096 if rows are short (4 MiB).
int64_t cross_entropy_chunk_rows(int64_t vocab);

/// result[row] = log(sum(exp(logits[row]))) for float32 logits [rows, vocab]. A row's bits depend only on that row.
void log_sum_exp(const Tensor& logits, std::span<double> result);

/// nll[row] = -log softmax(hidden[row] * weight')[target[row]], in nats, with hidden [rows, d], weight [vocab, d],
/// targets int32 [rows]. A row whose target is -1 is ignored: its nll is 0. Throws Error naming a target outside
/// the vocabulary.
void linear_cross_entropy(const Tensor& hidden, const Tensor& weight, const Tensor& targets, std::span<float> nll);

/// Forward and backward pass of a chunk while its logits are in memory. dhidden is overwritten with gradient_scale *
/// d(sum of nll) / d(hidden); the same scale of the gradient of weight is added to dweight (float32).
void linear_cross_entropy_with_gradients(const Tensor& hidden, const Tensor& weight, const Tensor& targets,
                                         float gradient_scale, std::span<float> nll, Tensor& dhidden, Tensor& dweight);

}  // namespace alibi::nn
