// Arrays of Python as tensors over the same memory: NumPy's, PyTorch's, and whatever else has DLPack or a buffer.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <optional>
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
  /// A new one for a result, contiguous: a tensor of PyTorch if `like` is one, else an array of NumPy. bfloat16 is for
  /// the shape of `like` alone.
  static Array for_result(nb::handle like, const Shape& shape, DType dtype);

  nb::object object() const { return keeper_; }

  Tensor tensor;

 private:
  Array() = default;
  nb::object keeper_;
};

/// Of an argument that may be None.
std::optional<Array> optional_array(nb::handle object, const char* operation, const char* name,
                                    Device device = Device::cpu);
/// A tensor over this memory, or over nothing if it has no elements. UsageError: it has no memory, or none that is
/// aligned to its elements.
Tensor view(void* data, Shape shape, Shape strides, DType dtype, const char* operation, const char* name,
            Device device = Device::cpu);
nb::object tuple_of(const Shape& shape);
/// UsageError: the object has no memory of that device, or not of a type that is read.
[[noreturn]] void refuse_memory(nb::handle object, const char* operation, const char* name, Device device);

/// NumPy's type of arrays, its types of elements, np.empty, the package's own empty_like(), and np.ones((2, 3),
/// float32): if that lies in memory as is known, arrays are read there.
void set_numpy(nb::object array, nb::object float32, nb::object float16, nb::object int32, nb::object empty,
               nb::object empty_like, nb::object probe);

/// The values of an array; UsageError that names it if they are of another type. None has none.
std::vector<float> floats_of(const Tensor& tensor, const char* operation, const char* name);
std::vector<int32_t> ints_of(nb::handle object, const char* operation, const char* name);
/// Of packed sequences or batch entries. An empty array, which is not None, is refused.
std::vector<int32_t> offsets_of(nb::handle object, const char* operation, const char* name);

}  // namespace alibi::python
