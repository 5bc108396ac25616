#include "options.h"

#include <string>

#include "alibi/error.h"
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
    throw UsageError("[" + std::string(operation) + "] " + name + " has shape " + to_string(shape) + ", expected [" +
                     std::to_string(heads) + "], one for each head, or [" + std::to_string(sequences) + ", " +
                     std::to_string(heads) + "], for each head of each batch entry or packed sequence");
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

AttentionOptions options_of(const nb::tuple& given, const char* operation, int64_t batch, int64_t heads) {
  const auto at = [&](Py_ssize_t i) { return nb::handle(PyTuple_GetItem(given.ptr(), i)); };
  AttentionOptions options = plain_options_of(given, operation);
  options.cu_seqlens_q = offsets_of(at(8), operation, "cu_seqlens_q");
  options.cu_seqlens_k = offsets_of(at(9), operation, "cu_seqlens_k");
  const int64_t sequences = options.cu_seqlens_q.empty() ? batch : std::ssize(options.cu_seqlens_q) - 1;
  options.alibi_slopes = slopes_of(at(0), operation, "alibi_slopes", sequences, heads);
  options.alibi_slopes_after = slopes_of(at(1), operation, "alibi_slopes_after", sequences, heads);
  return options;
}

AttentionOptions plain_options_of(const nb::tuple& given, const char* operation) {
  const auto at = [&](Py_ssize_t i) { return nb::handle(PyTuple_GetItem(given.ptr(), i)); };
  if (given.size() != 13) throw nb::type_error("options are a tuple of 13");
  AttentionOptions options;
  options.causal = flag(at(2), operation, "causal");
  options.sliding_window = integer(at(3), operation, "window_size");
  options.softmax_scale = scale_of(at(4), operation);
  options.dropout_p = single(at(5), operation, "dropout_p");
  options.dropout_seed = static_cast<uint64_t>(integer(at(6), operation, "dropout_seed"));
  if (!at(7).is_none()) options.query_offset = integer(at(7), operation, "query_offset");
  options.tolerance = single(at(10), operation, "tolerance");
  options.sliding_window_after = integer(at(11), operation, "window_size");
  options.softcap = single(at(12), operation, "softcap");
  return options;
}

}  // namespace alibi::python
