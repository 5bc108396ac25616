#include "options.h"

#include <string>

#include "arguments.h"

namespace alibi::python {
namespace {

/// `sequences` is the number of packed sequences, or of batch entries.
std::vector<float> slopes_of(nb::handle item, const char* operation, const char* name, int64_t sequences,
                             int64_t heads) {
  if (item.is_none()) return {};
  const Array slopes = Array::of_floats(item, operation, name);
  const Shape& shape = slopes.tensor.shape();
  if (shape != Shape{heads} && shape != Shape{sequences, heads}) {
    refuse(operation, name,
           "has shape " + to_string(shape) + ", expected " + to_string({heads}) + ", one for each head, or " +
               to_string({sequences, heads}) + ", for each head of each batch entry or packed sequence");
  }
  return floats_of(slopes.tensor, operation, name);
}

}  // namespace

float scale_of(nb::handle item, const char* operation) {
  if (item.is_none()) return 0;
  const float scale = single(item, operation, "softmax_scale");
  if (scale == 0) refuse_value(item, operation, "softmax_scale", "another number; None: 1 / sqrt(head_dim)");
  return scale;
}

Batch batch_of(const Tensor& q, const char* operation) {
  if (q.axes() == 4) return {.size = q.size(0), .heads = q.size(2)};
  refuse(operation, "q", "has shape " + to_string(q.shape()) + ", expected [batch, length, heads, head_dim]");
}

AttentionOptions options_of(const nb::tuple& given, const char* operation, Batch batch, Device device) {
  const auto [slopes, slopes_after, causal, window, softmax_scale, dropout_p, dropout_seed, query_offset, cu_seqlens_q,
              cu_seqlens_k, tolerance, window_after, softcap, sinks, log_decay] = items<15>(given);
  AttentionOptions options;
  options.causal = flag(causal, operation, "causal");
  options.sliding_window = integer(window, operation, "window_size");
  options.sliding_window_after = integer(window_after, operation, "window_size");
  options.softmax_scale = scale_of(softmax_scale, operation);
  options.dropout_p = single(dropout_p, operation, "dropout_p");
  if (!dropout_seed.is_none()) {
    options.dropout_seed = static_cast<uint64_t>(integer(dropout_seed, operation, "dropout_seed"));
  }
  if (!query_offset.is_none()) options.query_offset = integer(query_offset, operation, "query_offset");
  options.tolerance = single(tolerance, operation, "tolerance");
  options.softcap = single(softcap, operation, "softcap");
  options.cu_seqlens_q = offsets_of(cu_seqlens_q, operation, "cu_seqlens_q");
  options.cu_seqlens_k = offsets_of(cu_seqlens_k, operation, "cu_seqlens_k");
  const int64_t sequences = options.cu_seqlens_q.empty() ? batch.size : std::ssize(options.cu_seqlens_q) - 1;
  options.alibi_slopes = slopes_of(slopes, operation, "alibi_slopes", sequences, batch.heads);
  options.alibi_slopes_after = slopes_of(slopes_after, operation, "alibi_slopes_after", sequences, batch.heads);
  if (!sinks.is_none()) {
    const Array values = Array::of_floats(sinks, operation, "sinks");
    if (values.tensor.shape() != Shape{batch.heads}) {
      refuse(operation, "sinks",
             "has shape " + to_string(values.tensor.shape()) + ", expected " + to_string({batch.heads}) +
                 ", one for each head");
    }
    options.sinks = floats_of(values.tensor, operation, "sinks");
  }
  if (!log_decay.is_none() && device != Device::cpu) {  // the caller's tuple holds it
    options.log_decay = Array(log_decay, operation, "log_decay", device).tensor;
  } else if (!log_decay.is_none()) {  // a copy, because nothing holds the array after this call
    options.log_decay = Array::of_floats(log_decay, operation, "log_decay").tensor.clone();
  }
  return options;
}

}  // namespace alibi::python
