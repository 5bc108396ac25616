#include "model/pass.h"

#include <algorithm>
#include <utility>

namespace alibi::model {

void reuse(Tensor& tensor, const Shape& shape, DType dtype) {
  if (tensor.defined() && tensor.shape() == shape && tensor.dtype() == dtype) return;
  tensor = Tensor();  // freed before the allocation, so that the peak contains only one of them
  tensor = Tensor::empty(shape, dtype);
}

Tensor Sequences::part(const Tensor& tensor, size_t index) const {
  if (sessions.size() <= 1) return tensor;
  const auto row = static_cast<int64_t>(index);
  return cu_seqlens.empty() ? tensor.slice(0, row, row + 1) : tensor.slice(1, cu_seqlens[index], cu_seqlens[index + 1]);
}

void Sequences::each(std::vector<Tensor> parts, const std::function<void(std::span<Tensor>)>& run) const {
  const std::vector<int32_t> at = offsets();
  if (at.empty()) return run(parts);
  std::vector<Tensor> sequence(parts.size());
  for (size_t i = 0; i + 1 < at.size(); ++i) {
    for (size_t t = 0; t < parts.size(); ++t) sequence[t] = parts[t].slice(1, at[i], at[i + 1]);
    run(sequence);
  }
}

const Tensor& PassMemory::first() const {
  if (mode.keep == Keep::nothing || mode.precision == Precision::bf16) return stream;
  return blocks.empty() ? last.x : blocks.front().attention.x;
}

void PassMemory::each(const TransformerConfig& config, int64_t rows, const VisitTensor& visit) {
  const bool keeps = mode.keep != Keep::nothing;
  blocks.resize(static_cast<size_t>(keeps ? config.layers : std::min(config.layers, 1)));
  if (config.embedding.norm) {
    if (keeps) visit(true, entry.x, {rows, config.d_model}, DType::float32);
    entry.each_statistic(config, rows, visit);
  }
  for (BlockMemory& block : blocks) block.each(config, mode, rows, visit);
  if (keeps) visit(true, last.x, {rows, config.d_model}, mode.type());
  if (config.head.final_norm || !keeps) last.each_statistic(config, rows, visit);
  scratch.each(config, mode, rows, visit);
  visit(false, stream, {rows, config.d_model}, DType::float32);
  visit(false, branch, {rows, config.d_model}, mode.type());
}

void PassMemory::prepare(const TransformerConfig& config, const PassMode& mode_in, int64_t batch_in,
                         int64_t length_in) {
  if (mode == mode_in && batch == batch_in && length == length_in) return;
  mode = mode_in;
  batch = 0;  // if an exception follows, the memory is marked as not prepared
  const int64_t rows = batch_in * length_in;
  if (keep == nullptr && mode.keep != Keep::nothing) keep = std::make_unique<const core::KeepMemory>();
  each(config, rows, [](bool, Tensor& tensor, const Shape& shape, DType dtype) { reuse(tensor, shape, dtype); });
  scratch.cut(config, mode, rows);
  batch = batch_in;
  length = length_in;
  if (mode.keep != Keep::nothing) return;
  for (BlockMemory& block : blocks) {
    block.attention.statistics = block.feed_forward.statistics = last.statistics;
    block.products.attended = scratch.normed;
  }
}

PassMemory::Bytes PassMemory::predict(const TransformerConfig& config, const PassMode& mode, int64_t batch,
                                      int64_t length) {
  PassMemory none;
  none.mode = mode;
  Bytes bytes;
  none.each(config, batch * length, [&](bool kept, Tensor&, const Shape& shape, DType dtype) {
    int64_t elements = 1;
    for (const int64_t extent : shape) elements *= extent;
    (kept ? bytes.kept : bytes.scratch) += elements * static_cast<int64_t>(size_of(dtype));
  });
  // The log-sum-exps that attention keeps.
  const int64_t states = mode.keep == Keep::all ? config.layers : mode.keep == Keep::sums ? 1 : 0;
  bytes.kept += states * batch * length * config.attention.heads * static_cast<int64_t>(sizeof(float));
  return bytes;
}

}  // namespace alibi::model
