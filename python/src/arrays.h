// Arrays of Python as tensors over the same memory: NumPy's, PyTorch's, and whatever else has DLPack or a buffer.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <vector>

#include "alibi/tensor.h"

namespace alibi::python {

namespace nb = nanobind;

/// Holds the array for as long as the tensor is used; made and destroyed with the interpreter's lock.
class Array {
 public:
  /// float32, bfloat16 or int32; with `bits` 16-bit integers are bfloat16, for which NumPy has no type of its own.
  /// Throws UsageError that names the argument.
  Array(nb::handle object, const char* operation, const char* name, bool bits = false);

  Tensor tensor;

 private:
  nb::object keeper_;
};

/// What PyTorch's tensors are told by: their pointers are read directly, which takes a tenth of the time of DLPack.
void set_torch(nb::object tensor, nb::object float32, nb::object bfloat16, nb::object int32);

/// The values of a contiguous array; none for None.
std::vector<float> floats_of(nb::handle object, const char* operation, const char* name);
std::vector<int32_t> ints_of(nb::handle object, const char* operation, const char* name);

}  // namespace alibi::python
