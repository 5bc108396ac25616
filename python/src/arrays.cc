#include "arrays.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "arguments.h"
#include "torch_tensors.h"

namespace alibi::python {
namespace {

/// The beginning of every array of NumPy's: what the macros of its headers, compiled into all modules that use them,
/// read.
struct ArrayFields {
  PyObject head;
  char* data;
  int axes;
  Py_ssize_t* shape;
  Py_ssize_t* strides;  // bytes
  PyObject* base;
  PyObject* dtype;
};

/// The types as its dtype objects, of which there is one each for the byte order of this machine. Left to the end of
/// the process: what Python holds cannot be released after the interpreter.
struct NumPy {
  nb::object array, float32, float16, int32, empty, empty_like;
  bool fields_known = false;  // ArrayFields
};
NumPy* numpy = nullptr;

/// Whether its fields are read.
bool is_plain_numpy(nb::handle object) {
  return numpy != nullptr && numpy->fields_known && object.type().is(numpy->array);
}

const ArrayFields& fields_of(nb::handle array) { return *reinterpret_cast<const ArrayFields*>(array.ptr()); }

/// Nothing if it is of a type that is not read in this way.
std::optional<Tensor> view_of_numpy(nb::handle array, const char* operation, const char* name) {
  const ArrayFields& found = fields_of(array);
  DType type;
  if (found.dtype == numpy->float32.ptr()) {
    type = DType::float32;
  } else if (found.dtype == numpy->float16.ptr()) {
    type = DType::float16;
  } else if (found.dtype == numpy->int32.ptr()) {
    type = DType::int32;
  } else {
    return std::nullopt;
  }
  const auto size = static_cast<Py_ssize_t>(size_of(type));
  Shape shape(found.shape, found.shape + found.axes), strides;
  if (std::find(shape.begin(), shape.end(), 0) == shape.end()) {  // NumPy's empty arrays have any strides
    strides.reserve(shape.size());
    for (int axis = 0; axis < found.axes; ++axis) {
      if (found.strides[axis] % size != 0) refuse(operation, name, "has strides within its elements");
      strides.push_back(found.strides[axis] / size);
    }
  }
  return view(found.data, std::move(shape), std::move(strides), type, operation, name);
}

DType type_of(const nb::dlpack::dtype& found, const char* operation, const char* name) {
  using Code = nb::dlpack::dtype_code;
  const auto is = [&](Code code, int width) {
    return found.code == static_cast<uint8_t>(code) && found.bits == width && found.lanes == 1;
  };
  if (is(Code::Float, 32)) return DType::float32;
  if (is(Code::Float, 16)) return DType::float16;
  if (is(Code::Bfloat, 16)) return DType::bfloat16;
  if (is(Code::Int, 32)) return DType::int32;
  const char* const kind = found.code == static_cast<uint8_t>(Code::Float)  ? "float"
                           : found.code == static_cast<uint8_t>(Code::Int)  ? "int"
                           : found.code == static_cast<uint8_t>(Code::UInt) ? "uint"
                                                                            : "another type of bits ";
  refuse(operation, name, "is " + (kind + std::to_string(found.bits)) + ", expected float32, bfloat16 or float16");
}

template <class T>
std::vector<T> values_of(const Tensor& tensor, DType dtype, const char* operation, const char* name) {
  if (tensor.dtype() != dtype) refuse(operation, name, "is not an array of " + std::string(name_of(dtype)));
  const Tensor values = tensor.contiguous() ? tensor : tensor.clone();
  const T* const begin = values.data<T>();
  return {begin, begin + values.elements()};
}

bool is_bfloat16_of_numpy(nb::handle object) {
  const nb::object dtype = nb::getattr(object, "dtype", nb::none());
  const nb::object name = nb::getattr(dtype, "name", nb::none());  // types of other libraries have none
  return !name.is_none() && nb::hasattr(object, "view") && nb::cast<std::string>(nb::str(name)) == "bfloat16";
}

}  // namespace

nb::object tuple_of(const Shape& shape) {
  nb::object tuple = nb::steal(PyTuple_New(std::ssize(shape)));
  for (size_t axis = 0; axis < shape.size(); ++axis) {
    PyTuple_SetItem(tuple.ptr(), static_cast<Py_ssize_t>(axis), PyLong_FromLongLong(shape[axis]));
  }
  return tuple;
}

Tensor view(void* data, Shape shape, Shape strides, DType dtype, const char* operation, const char* name,
            Device device) {
  alignas(64) static char nothing[64];
  if (data == nullptr) {
    if (std::find(shape.begin(), shape.end(), 0) == shape.end()) {
      refuse(operation, name, "has shape " + to_string(shape) + " but no memory; expected a tensor with its values");
    }
    data = nothing;  // arrays without elements have no memory
  }
  if (reinterpret_cast<uintptr_t>(data) % size_of(dtype) != 0)
    refuse(operation, name, "is not aligned to its elements");
  return Tensor::view(data, std::move(shape), dtype, std::move(strides), device);
}

void refuse_memory(nb::handle object, const char* operation, const char* name, Device device) {
  const char* const why = device == Device::cuda ? " that is not on a GPU; expected a PyTorch tensor on 'cuda', as q is"
                                                 : " that gives no memory of the CPU; expected a NumPy array or a "
                                                   "PyTorch tensor on the CPU, float32, bfloat16 "
                                                   "or float16";
  refuse(operation, name, std::string("is a ") + nb::type_name(object.type()).c_str() + why);
}

void set_numpy(nb::object array, nb::object float32, nb::object float16, nb::object int32, nb::object empty,
               nb::object empty_like, nb::object probe) {
  if (numpy != nullptr) return;
  const ArrayFields& found = fields_of(probe);
  const bool as_known = found.axes == 2 && found.shape[0] == 2 && found.shape[1] == 3 && found.strides[0] == 12 &&
                        found.strides[1] == 4 && found.dtype == float32.ptr() &&
                        std::equal(found.data, found.data + 4, "\0\0\x80\x3f");
  numpy = new NumPy{std::move(array), std::move(float32), std::move(float16),
                    std::move(int32), std::move(empty),   std::move(empty_like),
                    as_known};
}

Array Array::of_floats(nb::handle object, const char* operation, const char* name) {
  const bool as_it_is = is_torch(object) || (is_plain_numpy(object) && fields_of(object).dtype == numpy->float32.ptr());
  if (as_it_is) return {object, operation, name};
  constexpr const char* expected = "an array of numbers";
  try {
    const nb::object values = nb::module_::import_("numpy").attr("asarray")(object);
    const auto kind = nb::cast<std::string>(values.attr("dtype").attr("kind"));
    if (kind != "f" && kind != "i" && kind != "u") python::refuse_type(object, operation, name, expected);
    return {values.attr("astype")("float32"), operation, name};
  } catch (const nb::python_error&) {
    python::refuse_type(object, operation, name, expected);
  }
}

Array Array::to_write(nb::handle object, const char* operation, const char* name) {
  const nb::object flags = nb::getattr(object, "flags", nb::none());
  if (!nb::cast<bool>(nb::getattr(flags, "writeable", nb::bool_(true)))) {
    refuse(operation, name, "is read-only, expected an array that can be written");
  }
  if (is_torch(object)) {
    if (is_negative_view(object)) {
      refuse(operation, name, "is a view with the opposite sign (torch._neg_view), expected a plain tensor");
    }
  } else if (flags.is_none() && !nb::try_cast(object, *std::make_unique<nb::ndarray<nb::device::cpu>>(), false)) {
    PyErr_Clear();
    refuse(operation, name, "is read-only or no array, expected an array of the CPU that can be written");
  }
  return {object, operation, name};
}

Array Array::for_result(nb::handle like, const Shape& shape, DType dtype) {
  if (is_torch(like)) {
    Array array;
    std::tie(array.keeper_, array.tensor) = empty_torch(shape, dtype);
    return array;
  }
  // NumPy has no bfloat16 of its own.
  nb::object made = nb::steal(
      dtype == DType::bfloat16
          ? PyObject_CallFunctionObjArgs(numpy->empty_like.ptr(), like.ptr(), nullptr)
          : PyObject_CallFunctionObjArgs(numpy->empty.ptr(), tuple_of(shape).ptr(),
                                         (dtype == DType::float16 ? numpy->float16 : numpy->float32).ptr(), nullptr));
  if (!made.is_valid()) throw nb::python_error();
  Array array(made, "attention", "out");
  array.keeper_ = std::move(made);  // itself, where the memory was read as another type
  return array;
}

Array::Array(nb::handle object, const char* operation, const char* name, Device device) {
  keeper_ = nb::borrow(object);
  if (is_torch(object)) {
    if (is_negative_view(object)) keeper_ = object.attr("resolve_neg")();
    tensor = view_of_torch(keeper_, operation, name, device);
    return;
  }
  if (device != Device::cpu) refuse_memory(object, operation, name, device);
  if (is_plain_numpy(object)) {
    if (std::optional<Tensor> found = view_of_numpy(object, operation, name)) {
      tensor = std::move(*found);
      return;
    }
  }
  // NumPy has no bfloat16 of its own, and hands on that of ml_dtypes as integers alone.
  const bool bits = is_bfloat16_of_numpy(object);
  if (bits) keeper_ = object.attr("view")("uint16");
  using Any = nb::ndarray<nb::ro, nb::device::cpu>;
  Any array;
  // Scalars of NumPy give a buffer too, some of them without a format, which nanobind reads.
  if (!nb::hasattr(object.type(), "__dlpack__") || !nb::try_cast(keeper_, array, false)) {
    PyErr_Clear();
    refuse_memory(object, operation, name, device);
  }
  Shape shape, strides;
  for (size_t axis = 0; axis < array.ndim(); ++axis) {
    shape.push_back(static_cast<int64_t>(array.shape(axis)));
    strides.push_back(array.stride(axis));
  }
  tensor = view(const_cast<void*>(static_cast<const void*>(array.data())), std::move(shape), std::move(strides),
                bits ? DType::bfloat16 : type_of(array.dtype(), operation, name), operation, name);
}

std::optional<Array> optional_array(nb::handle object, const char* operation, const char* name, Device device) {
  if (object.is_none()) return std::nullopt;
  return std::optional<Array>(std::in_place, object, operation, name, device);
}

std::vector<float> floats_of(const Tensor& tensor, const char* operation, const char* name) {
  return values_of<float>(tensor, DType::float32, operation, name);
}

std::vector<int32_t> ints_of(nb::handle object, const char* operation, const char* name) {
  if (object.is_none()) return {};
  return values_of<int32_t>(Array(object, operation, name).tensor, DType::int32, operation, name);
}

std::vector<int32_t> offsets_of(nb::handle object, const char* operation, const char* name) {
  std::vector<int32_t> offsets = ints_of(object, operation, name);
  if (!object.is_none() && offsets.empty()) {
    refuse(operation, name, "has no values, expected those of each batch entry or packed sequence; None: none");
  }
  return offsets;
}

}  // namespace alibi::python
