// The residual stream, to which all branches of the layers are added, and the norms between the stream and the
// branches.
#pragma once

#include <functional>
#include <optional>

#include "model/layers.h"
#include "nn/norm.h"

// Dimension letters: R rows, C d_model.

namespace alibi::model {

/// Called for every tensor of a pass that owns memory. `kept` means that the backward pass needs it.
using VisitTensor = std::function<void(bool kept, Tensor& tensor, const Shape& shape, DType dtype)>;

/// The state at a norm, where a branch was added to the stream and the next branch's input was computed. Kept for the
/// backward pass.
struct ResidualNorm {
  /// [R, C]: the stream after the branch was added. In float32 it is the stream itself, in bfloat16 a copy. Undefined
  /// if it is not kept.
  Tensor x;
  nn::NormStatistics statistics;
  std::optional<nn::BranchDropout> returned;  ///< absent if no branch was added here

  void each_statistic(const TransformerConfig& config, int64_t rows, const VisitTensor& visit);
};

/// Forward pass. A branch writes its output to `branch` and calls add(); the next norm adds it to the stream. After a
/// norm the stream continues with the sum (pre-norm) or with the norm's output (post-norm), as Residual selects.
class ResidualStream {
 public:
  /// x is [R, C] float32; the branch has the data type of the activations. With Residual::normed the stream is in
  /// `normed_memory` [R, C], float32, after each norm; x may be that memory.
  ResidualStream(const Tensor& x, const Tensor& branch_memory, Residual residual, const Tensor& normed_memory)
      : branch(branch_memory), x_(x), normed_(residual == Residual::normed ? normed_memory : Tensor()) {}

  Tensor branch;
  /// Called after each norm, and at the end, with the stream [R, C] from which the next branch starts. May be empty.
  std::function<void(const Tensor& stream)> on_stream;
  void add(const nn::BranchDropout& dropout) { added_ = dropout; }
  /// branch = norm(stream + branch), in inference. Overwrites the statistics.
  void normalize_branch(const NormLayer& norm, nn::NormStatistics& statistics);

  /// y = norm of the stream
  void normalize(const NormLayer& norm, ResidualNorm& at, Tensor& y);
  /// y = the final stream. y may be its memory.
  void end(ResidualNorm& at, Tensor& y);

 private:
  Tensor x_;
  Tensor normed_;  // undefined if the stream is the sum
  std::optional<nn::BranchDropout> added_;
};

/// Backward pass: the gradient of the stream, from the last layer to the first.
class ResidualGradient {
 public:
  /// dx is [R, C] float32. If branch_memory is undefined, the gradient of a branch is the gradient of the stream. This
  /// saves the copy if activations are float32 and there is no dropout.
  ResidualGradient(const Tensor& dx, const Tensor& branch_memory, Residual residual)
      : dx_(dx), branch_(branch_memory), residual_(residual) {}

  /// The gradient of the branch that was added at the last norm.
  const Tensor& dbranch() const { return branch_.defined() ? branch_ : dx_; }

  /// Adds the contribution of dy, the gradient of the norm's output, to the stream's gradient. With Residual::normed,
  /// dy is overwritten with the whole gradient of that output.
  void normalize_backward(Tensor& dy, const NormLayer& norm, const ResidualNorm& at);
  /// normalize_backward() for the norm at the end of the stream.
  void final_norm_backward(const Tensor& dy, const NormLayer& norm, const ResidualNorm& at);
  void end_backward(const Tensor& dy, const ResidualNorm& at);

 private:
  void through_norm(const Tensor& dy, const NormLayer& norm, const ResidualNorm& at);

  Tensor dx_, branch_;
  Residual residual_;
};

}  // namespace alibi::model
