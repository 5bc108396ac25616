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
  /// float32, bfloat16 (of PyTorch or ml_dtypes), float16 or int32. Throws UsageError that names the argument.
  /// On Device::cuda: a PyTorch tensor on the current GPU.
  Array(nb::handle object, const char* operation, const char* name, Device device = Device::cpu);
  /// One of the caller's that will be written: not read-only.
  static Array to_write(nb::handle object, const char* operation, const char* name);
  /// An array of float32. Values other than PyTorch's tensors and such NumPy arrays are converted.
  static Array of_floats(nb::handle object, const char* operation, const char* name);
  /// One that was made for a result, contiguous and of the type of `like`: of PyTorch's only the address is read.
  static Array made_like(const Tensor& like, nb::handle object, const char* operation, const char* name);

  Tensor tensor;

 private:
  Array() = default;
  nb::object keeper_;
};

/// PyTorch's type of tensors, its function that describes them, which takes a tenth of the time of the method, and the
/// type of their storages.
void set_torch(nb::object tensor, nb::object to_dlpack, nb::object storage);

/// NumPy's type of arrays, its types of elements, and np.ones((2, 3), float32): if that lies in memory as is known,
/// arrays are read there.
void set_numpy(nb::object array, nb::object float32, nb::object float16, nb::object int32, nb::object probe);

/// The values of an array; UsageError that names it if they are of another type. None has none.
std::vector<float> floats_of(const Tensor& tensor, const char* operation, const char* name);
std::vector<int32_t> ints_of(nb::handle object, const char* operation, const char* name);
/// Of packed sequences or batch entries. An empty array, which is not None, is refused.
std::vector<int32_t> offsets_of(nb::handle object, const char* operation, const char* name);

}  // namespace alibi::python
