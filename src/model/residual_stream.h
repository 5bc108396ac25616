// The residual stream: what runs past all branches of the layers, and the passages between it and them.
#pragma once

#include <functional>
#include <optional>

#include "model/layers.h"
#include "nn/norm.h"

// Dimension letters: R rows, C d_model.

namespace alibi::model {

/// Called for every tensor of a pass that owns memory. `kept`: from the forward to the backward pass.
using VisitTensor = std::function<void(bool kept, Tensor& tensor, const Shape& shape, DType dtype)>;

/// Where one branch returned to the stream and a norm took what the next one sees; kept for the backward pass.
struct ResidualNorm {
  /// [R, C] the stream after the branch returned: float32, the stream itself; bfloat16, a copy; undefined: not kept.
  Tensor x;
  nn::NormStatistics statistics;
  std::optional<nn::BranchDropout> returned;  ///< absent: no branch did

  void each_statistic(const TransformerConfig& config, int64_t rows, const VisitTensor& visit);
};

/// Forward. A branch writes to `branch` and says so; the next passage adds it to the stream. After a norm the stream
/// continues with the sum (pre-norm) or with the norm's output (post-norm), as Residual says.
class ResidualStream {
 public:
  /// x [R, C] float32; branch of the activations' type. With Residual::normed the stream stands in `normed_memory`
  /// [R, C], float32, after each norm; x may be that memory.
  ResidualStream(const Tensor& x, const Tensor& branch_memory, Residual residual, const Tensor& normed_memory)
      : branch(branch_memory), x_(x), normed_(residual == Residual::normed ? normed_memory : Tensor()) {}

  Tensor branch;
  void add(const nn::BranchDropout& dropout) { added_ = dropout; }

  /// y = norm of the stream
  void normalize(const NormLayer& norm, ResidualNorm& at, Tensor& y);
  /// y = the stream, which ends; y may be its memory.
  void end(ResidualNorm& at, Tensor& y);

 private:
  Tensor x_;
  Tensor normed_;  // undefined: the stream is the sum
  std::optional<nn::BranchDropout> added_;
};

/// Backward: the gradient of the stream, from the top down.
class ResidualGradient {
 public:
  /// dx [R, C] float32; branch_memory undefined: the gradient of a branch is that of the stream, which saves the copy
  /// where activations are float32 and nothing is dropped.
  ResidualGradient(const Tensor& dx, const Tensor& branch_memory, Residual residual)
      : dx_(dx), branch_(branch_memory), residual_(residual) {}

  /// Of the branch that returned at the last passage.
  const Tensor& dbranch() const { return branch_.defined() ? branch_ : dx_; }

  /// Adds to the stream's gradient what dy, that of the norm's output, has for it. With Residual::normed dy is
  /// overwritten with the whole gradient of that output.
  void normalize_backward(Tensor& dy, const NormLayer& norm, const ResidualNorm& at);
  /// The same for the norm that ends the stream.
  void final_norm_backward(const Tensor& dy, const NormLayer& norm, const ResidualNorm& at);
  void end_backward(const Tensor& dy, const ResidualNorm& at);

 private:
  void through_norm(const Tensor& dy, const NormLayer& norm, const ResidualNorm& at);

  Tensor dx_, branch_;
  Residual residual_;
};

}  // namespace alibi::model
