#include "options.h"

#include <string>

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

}  // namespace

AttentionOptions options_of(const nb::tuple& given, const char* operation) {
  const auto at = [&](Py_ssize_t i) { return nb::handle(PyTuple_GetItem(given.ptr(), i)); };
  if (given.size() != 11) throw nb::type_error("options are a tuple of 11");
  AttentionOptions options;
  options.slopes = floats_of(at(0), operation, "alibi_slopes");
  options.slopes_after = floats_of(at(1), operation, "alibi_slopes_after");
  options.causal = at(2).ptr() == Py_True;
  options.window = integer(at(3), operation, "window_size");
  options.scale = at(4).is_none() ? 0.0f : static_cast<float>(real(at(4), operation, "softmax_scale"));
  options.dropout = static_cast<float>(real(at(5), operation, "dropout_p"));
  options.dropout_seed = static_cast<uint64_t>(integer(at(6), operation, "dropout_seed"));
  if (!at(7).is_none()) options.query_offset = integer(at(7), operation, "query_offset");
  options.cu_seqlens_q = ints_of(at(8), operation, "cu_seqlens_q");
  options.cu_seqlens_k = ints_of(at(9), operation, "cu_seqlens_k");
  options.tolerance = static_cast<float>(real(at(10), operation, "tolerance"));
  return options;
}

}  // namespace alibi::python
