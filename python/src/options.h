// Attention's options as the package's own Python passes them.
#pragma once

#include <array>
#include <string>

#include "alibi/attention.h"
#include "arrays.h"

namespace alibi::python {

/// None: 0, the default of C++. 0 itself is refused.
float scale_of(nb::handle softmax_scale, const char* operation);

/// The items of a tuple of the package's.
template <size_t n>
std::array<nb::handle, n> items(const nb::tuple& given) {
  if (given.size() != n) throw nb::type_error(("options are a tuple of " + std::to_string(n)).c_str());
  std::array<nb::handle, n> items;
  for (size_t i = 0; i < n; ++i) items[i] = PyTuple_GetItem(given.ptr(), static_cast<Py_ssize_t>(i));
  return items;
}

/// The shape that slopes depend on.
struct Batch {
  int64_t size = 0, heads = 0;
};
Batch batch_of(const Tensor& q, const char* operation);

/// Of a tuple of all options in the order of Options (_options.py); None: the default. Throws TypeError that names what
/// is of the wrong type, UsageError for slopes that do not fit the batch.
AttentionOptions options_of(const nb::tuple& given, const char* operation, Batch batch, Device device = Device::cpu);

}  // namespace alibi::python
