#include "model/training_buffers.h"

#include <algorithm>

namespace alibi {
namespace {

enum class Kind : uint8_t { kept, scratch };

/// Reuses a tensor's memory from step to step where the shape stays.
void reuse(Tensor& tensor, const Shape& shape, DType dtype) {
  if (tensor.defined() && tensor.shape() == shape && tensor.dtype() == dtype) return;
  tensor = Tensor();  // free before allocating: the peak holds one of them
  tensor = Tensor::empty(shape, dtype);
}

}  // namespace

template <class Visit>
void TrainingBuffers::each(const TransformerConfig& config, const TrainingMode& mode, int64_t rows,
                           const Visit& visit) {
  const int64_t width = config.d_model, hidden = config.ffn_dim();
  const DType type = mode.precision == Precision::bf16 ? DType::bfloat16 : DType::float32;
  const auto statistics = [&](nn::NormStatistics& of) {
    if (config.norm == Norm::layer_norm) visit(Kind::kept, of.mean, {rows}, DType::float32);
    visit(Kind::kept, of.rstd, {rows}, DType::float32);
  };
  const auto kept = [&](Kept& of) {
    visit(Kind::kept, of.qkv, {rows, qkv_dim(config)}, type);
    visit(Kind::kept, of.attended, {rows, width}, type);
    visit(Kind::kept, of.up, {rows, up_dim(config)}, type);
  };
  layers.resize(static_cast<size_t>(config.layers));
  for (Layer& layer : layers) {
    visit(Kind::kept, layer.x, {rows, width}, type);
    statistics(layer.statistics1);
    visit(Kind::kept, layer.middle, {rows, width}, type);
    statistics(layer.statistics2);
    if (!mode.recompute) kept(layer.kept);
  }
  if (mode.recompute) kept(recomputed);
  visit(Kind::kept, last, {rows, width}, type);
  if (config.final_norm) statistics(final_statistics);

  visit(Kind::scratch, stream, {rows, width}, DType::float32);
  visit(Kind::scratch, branch, {rows, width}, type);
  visit(Kind::scratch, normed, {rows, width}, type);
  visit(Kind::scratch, workspace, {rows * (std::max<int64_t>(hidden, qkv_dim(config)) + width)}, type);
}

void TrainingBuffers::prepare(const TransformerConfig& config, const TrainingMode& mode, int64_t batch_in,
                              int64_t length_in) {
  batch = batch_in;
  length = length_in;
  const int64_t rows = batch * length;
  if (keep == nullptr) keep = std::make_unique<const KeepMemory>();
  each(config, mode, rows, [](Kind, Tensor& tensor, const Shape& shape, DType dtype) { reuse(tensor, shape, dtype); });
  const int64_t width = config.d_model, hidden = config.ffn_dim(), qkv = qkv_dim(config);
  const int64_t first = rows * std::max<int64_t>(hidden, qkv);
  activated = dhidden = workspace.slice(0, 0, rows * hidden).reshape({rows, hidden});
  dqkv = workspace.slice(0, 0, rows * qkv).reshape({rows, qkv});
  dattended = dnormed = workspace.slice(0, first, first + rows * width).reshape({rows, width});
}

TrainingBuffers::Bytes TrainingBuffers::predict(const TransformerConfig& config, const TrainingMode& mode,
                                                int64_t batch, int64_t length) {
  TrainingBuffers none;
  Bytes bytes;
  none.each(config, mode, batch * length, [&](Kind kind, Tensor&, const Shape& shape, DType dtype) {
    int64_t elements = 1;
    for (const int64_t extent : shape) elements *= extent;
    (kind == Kind::kept ? bytes.kept : bytes.scratch) += elements * static_cast<int64_t>(size_of(dtype));
  });
  // The log-sum-exps that attention keeps.
  const int64_t states = mode.recompute ? 1 : config.layers;
  bytes.kept += states * batch * length * config.heads * static_cast<int64_t>(sizeof(float));
  return bytes;
}

}  // namespace alibi
