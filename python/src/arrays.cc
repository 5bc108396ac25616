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

#include "alibi/error.h"
#include "arguments.h"

namespace alibi::python {
namespace {

[[noreturn]] void refuse(const char* operation, const char* name, const std::string& why) {
  throw UsageError("[" + std::string(operation) + "] " + name + " " + why);
}

[[noreturn]] void refuse_type(const char* operation, const char* name, nb::handle object, Device device) {
  const std::string found = "is a " + std::string(nb::type_name(object.type()).c_str());
  if (device == Device::cuda) {
    refuse(operation, name, found + " that is not on a GPU; expected a PyTorch tensor on 'cuda', as q is");
  }
  refuse(operation, name,
         found +
             " that gives no memory of the CPU; expected a NumPy array or a PyTorch tensor on the CPU, "
             "float32, bfloat16 or float16");
}

/// Left to the end of the process, as the one below: what Python holds cannot be released after the interpreter.
struct Torch {
  nb::object tensor, to_dlpack, untyped_storage, nbytes, storage_offset, is_neg;
  nb::object data_ptr = nb::str("data_ptr");
};
Torch* torch = nullptr;

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

/// The types as its dtype objects, of which there is one each for the byte order of this machine.
struct NumPy {
  nb::object array, float32, float16, int32;
};
NumPy* numpy = nullptr;

/// What DLPack's capsule holds (dlpack.h, version 0), as far as it is read.
struct Exported {
  void* data;
  int32_t device, device_id;
  int32_t axes;
  nb::dlpack::dtype dtype;
  int64_t* shape;
  int64_t* strides;
  uint64_t byte_offset;
};
constexpr int32_t on_cpu = 1, on_cuda = 2;

Tensor view(void* data, Shape shape, Shape strides, DType dtype, const char* operation, const char* name,
            Device device = Device::cpu) {
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

/// Nothing if it is of a type that is not read in this way.
std::optional<Tensor> view_of_numpy(nb::handle array, const char* operation, const char* name) {
  const auto& found = *reinterpret_cast<const ArrayFields*>(array.ptr());
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

nb::object call(const nb::object& function, nb::handle argument) {
  nb::object result = nb::steal(PyObject_CallFunctionObjArgs(function.ptr(), argument.ptr(), nullptr));
  if (!result.is_valid()) throw nb::python_error();
  return result;
}

/// A storage may have been freed or shortened under its tensors, as FSDP does with parameters. Then their addresses
/// mean nothing.
void check_storage(nb::handle object, const Tensor& tensor, const char* operation, const char* name) {
  if (tensor.elements() == 0) return;
  const auto there = nb::cast<int64_t>(call(torch->nbytes, call(torch->untyped_storage, object)));
  int64_t end = nb::cast<int64_t>(call(torch->storage_offset, object)) + 1;
  for (int axis = 0; axis < tensor.axes(); ++axis) end += tensor.stride(axis) * (tensor.size(axis) - 1);
  end *= static_cast<int64_t>(size_of(tensor.dtype()));
  if (end > there) {
    refuse(operation, name,
           "has shape " + to_string(tensor.shape()) + ", but its storage has only " + std::to_string(there) + " of " +
               std::to_string(end) + " bytes; expected a tensor whose memory was not freed");
  }
}

/// And the capsule that keeps the memory.
std::pair<Tensor, nb::object> view_of_torch(nb::handle object, const char* operation, const char* name, Device device) {
  if (call(torch->is_neg, object).ptr() == Py_True) {  // its memory has the opposite sign
    const nb::object resolved = object.attr("resolve_neg")();
    return view_of_torch(resolved, operation, name, device);
  }
  PyObject* const made = PyObject_CallFunctionObjArgs(torch->to_dlpack.ptr(), object.ptr(), nullptr);
  if (made == nullptr) {
    PyErr_Clear();
    refuse_type(operation, name, object, device);
  }
  nb::object capsule = nb::steal(made);
  const auto* const found = static_cast<const Exported*>(PyCapsule_GetPointer(capsule.ptr(), "dltensor"));
  if (found == nullptr) throw nb::python_error();
  if (found->device != (device == Device::cuda ? on_cuda : on_cpu)) refuse_type(operation, name, object, device);
  const DType type = type_of(found->dtype, operation, name);
  Shape shape(found->shape, found->shape + found->axes), strides(found->strides, found->strides + found->axes);
  char* const data = static_cast<char*>(found->data) + found->byte_offset;
  Tensor tensor = view(data, std::move(shape), std::move(strides), type, operation, name, device);
  check_storage(object, tensor, operation, name);
  return {std::move(tensor), std::move(capsule)};
}

void* address_of_torch(nb::handle object) {
  PyObject* const method = PyObject_GetAttr(object.ptr(), torch->data_ptr.ptr());
  if (method == nullptr) throw nb::python_error();
  const nb::object bound = nb::steal(method);
  PyObject* const address = PyObject_CallNoArgs(bound.ptr());
  if (address == nullptr) throw nb::python_error();
  const nb::object number = nb::steal(address);
  void* const data = PyLong_AsVoidPtr(number.ptr());
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  return data;
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

bool is_torch(nb::handle object) {
  // Not isinstance(), which PyTorch answers in Python.
  return torch != nullptr && PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(object.type().ptr()),
                                              reinterpret_cast<PyTypeObject*>(torch->tensor.ptr())) != 0;
}

}  // namespace

void set_torch(nb::object tensor, nb::object to_dlpack, nb::object storage) {
  if (torch != nullptr) return;
  const nb::object nbytes = storage.attr("nbytes"), untyped_storage = tensor.attr("untyped_storage"),
                   storage_offset = tensor.attr("storage_offset"), is_neg = tensor.attr("is_neg");
  torch = new Torch{std::move(tensor), std::move(to_dlpack), untyped_storage, nbytes, storage_offset, is_neg};
}

void set_numpy(nb::object array, nb::object float32, nb::object float16, nb::object int32, nb::object probe) {
  const auto& found = *reinterpret_cast<const ArrayFields*>(probe.ptr());
  const bool as_known = found.axes == 2 && found.shape[0] == 2 && found.shape[1] == 3 && found.strides[0] == 12 &&
                        found.strides[1] == 4 && found.dtype == float32.ptr() &&
                        std::equal(found.data, found.data + 4, "\0\0\x80\x3f");
  if (as_known && numpy == nullptr) {
    numpy = new NumPy{std::move(array), std::move(float32), std::move(float16), std::move(int32)};
  }
}

Array Array::of_floats(nb::handle object, const char* operation, const char* name) {
  const bool as_it_is =
      is_torch(object) || (numpy != nullptr && object.type().is(numpy->array) &&
                           reinterpret_cast<const ArrayFields*>(object.ptr())->dtype == numpy->float32.ptr());
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
    if (call(torch->is_neg, object).ptr() == Py_True) {
      refuse(operation, name, "is a view with the opposite sign (torch._neg_view), expected a plain tensor");
    }
  } else if (flags.is_none() && !nb::try_cast(object, *std::make_unique<nb::ndarray<nb::device::cpu>>(), false)) {
    PyErr_Clear();
    refuse(operation, name, "is read-only or no array, expected an array of the CPU that can be written");
  }
  return {object, operation, name};
}

Array Array::made_like(const Tensor& like, nb::handle object, const char* operation, const char* name) {
  if (!is_torch(object)) return {object, operation, name};
  Array array;
  array.keeper_ = nb::borrow(object);
  array.tensor = view(address_of_torch(object), like.shape(), {}, like.dtype(), operation, name, like.device());
  return array;
}

Array::Array(nb::handle object, const char* operation, const char* name, Device device) {
  if (is_torch(object)) {
    std::tie(tensor, keeper_) = view_of_torch(object, operation, name, device);
    return;
  }
  if (device != Device::cpu) refuse_type(operation, name, object, device);
  keeper_ = nb::borrow(object);
  if (numpy != nullptr && object.type().is(numpy->array)) {
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
    refuse_type(operation, name, object, device);
  }
  Shape shape, strides;
  for (size_t axis = 0; axis < array.ndim(); ++axis) {
    shape.push_back(static_cast<int64_t>(array.shape(axis)));
    strides.push_back(array.stride(axis));
  }
  tensor = view(const_cast<void*>(static_cast<const void*>(array.data())), std::move(shape), std::move(strides),
                bits ? DType::bfloat16 : type_of(array.dtype(), operation, name), operation, name);
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
