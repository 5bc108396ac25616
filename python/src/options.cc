#include "options.h"

#include <string>

#include "alibi/error.h"

namespace alibi::python {
namespace {

[[noreturn]] void wrong_type(const char* operation, const char* name, nb::handle item, const char* expected) {
  PyErr_Clear();
  throw nb::type_error(("[" + std::string(operation) + "] " + name + " is a " + nb::type_name(item.type()).c_str() +
                        ", expected " + expected)
                           .c_str());
}

double real(nb::handle item, const char* operation, const char* name) {
  const double value = PyFloat_AsDouble(item.ptr());
  if (value == -1 && PyErr_Occurred() != nullptr) wrong_type(operation, name, item, "a number");
  return value;
}

int64_t integer(nb::handle item, const char* operation, const char* name) {
  PyObject* const index = PyNumber_Index(item.ptr());
  if (index == nullptr) wrong_type(operation, name, item, "an integer");
  const int64_t value = PyLong_AsLongLong(index);
  Py_DECREF(index);
  if (value == -1 && PyErr_Occurred() != nullptr) wrong_type(operation, name, item, "an integer of 64 bits");
  return value;
}

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

AttentionOptions options_of(const nb::tuple& given, const char* operation, int64_t batch, int64_t heads) {
  const auto at = [&](Py_ssize_t i) { return nb::handle(PyTuple_GetItem(given.ptr(), i)); };
  if (given.size() != 13) throw nb::type_error("options are a tuple of 13");
  AttentionOptions options;
  options.cu_seqlens_q = ints_of(at(8), operation, "cu_seqlens_q");
  options.cu_seqlens_k = ints_of(at(9), operation, "cu_seqlens_k");
  const int64_t sequences = options.cu_seqlens_q.empty() ? batch : std::ssize(options.cu_seqlens_q) - 1;
  options.alibi_slopes = slopes_of(at(0), operation, "alibi_slopes", sequences, heads);
  options.alibi_slopes_after = slopes_of(at(1), operation, "alibi_slopes_after", sequences, heads);
  options.causal = PyObject_IsTrue(at(2).ptr()) == 1;
  options.sliding_window = integer(at(3), operation, "window_size");
  options.softmax_scale = at(4).is_none() ? 0.0f : static_cast<float>(real(at(4), operation, "softmax_scale"));
  options.dropout_p = static_cast<float>(real(at(5), operation, "dropout_p"));
  options.dropout_seed = static_cast<uint64_t>(integer(at(6), operation, "dropout_seed"));
  if (!at(7).is_none()) options.query_offset = integer(at(7), operation, "query_offset");
  options.tolerance = static_cast<float>(real(at(10), operation, "tolerance"));
  options.sliding_window_after = integer(at(11), operation, "window_size");
  options.softcap = static_cast<float>(real(at(12), operation, "softcap"));
  return options;
}

}  // namespace alibi::python
