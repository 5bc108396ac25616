// Embedding of token ids, and probabilities of the next token, computed from the same weights.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "alibi/language_model.h"
#include "model/parameters.h"

// Dimension letters: R rows, C d_model, V vocab_size.

namespace alibi::model {

class Vocabulary {
 public:
  virtual ~Vocabulary() = default;

  virtual void declare(const VisitParameter& visit) = 0;

  /// ids int32 [R] -> y [R, C], float32. The embeddings of token types [R] (null: all are 0) are added, if there are
  /// any.
  virtual void embed(const Tensor& ids, const Tensor* token_types, Tensor& y) const = 0;
  virtual void embed_backward(const Tensor& dy, const Tensor& ids) = 0;

  /// states [R, C] in the data type of the parameters' operands -> float32 [R, V], whose softmax is the prediction.
  virtual void logits(const Tensor& states, Tensor& result) const = 0;
  /// Encoders with a classifier: states [R, C] float32 of first tokens -> float32 [R, labels].
  virtual Tensor classify(const Tensor& states) const = 0;
  /// Negative log-likelihood of each target [R] in nats; 0 for the target -1.
  virtual void nll(const Tensor& states, const Tensor& targets, std::span<float> result) const = 0;
  /// Overwrites dstates with gradient_scale * d(sum of nll), and adds the same scale of the weights' gradients to them.
  virtual void nll_with_gradients(const Tensor& states, const Tensor& targets, float gradient_scale,
                                  const StepSeed& seed, std::span<float> result, Tensor& dstates) = 0;
};

/// Creates one table [V, C], or the bands of config.adaptive. Its parameters are not allocated yet.
std::unique_ptr<Vocabulary> make_vocabulary(const LanguageModelConfig& config);

}  // namespace alibi::model
