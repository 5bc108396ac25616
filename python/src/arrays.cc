#include "arrays.h"

#include <nanobind/ndarray.h>

#include <cstring>
#include <string>

#include "alibi/error.h"

namespace alibi::python {
namespace {

[[noreturn]] void refuse(const char* operation, const char* name, const std::string& why) {
  throw UsageError("[" + std::string(operation) + "] " + name + " " + why);
}

[[noreturn]] void refuse_type(const char* operation, const char* name, nb::handle object) {
  refuse(operation, name,
         "is a " + std::string(nb::type_name(object.type()).c_str()) +
             " that gives no memory of the CPU; expected a NumPy array or a PyTorch tensor on the CPU, "
             "float32 or bfloat16");
}

/// Left to the end of the process: what Python holds cannot be released after the interpreter.
struct Torch {
  nb::object tensor, float32, bfloat16, int32;
  nb::object is_cpu = nb::str("is_cpu"), dtype = nb::str("dtype"), shape = nb::str("shape"), stride = nb::str("stride"),
             data_ptr = nb::str("data_ptr");
};
Torch* torch = nullptr;

nb::object attribute(nb::handle object, const nb::object& name) {
  PyObject* const found = PyObject_GetAttr(object.ptr(), name.ptr());
  if (found == nullptr) throw nb::python_error();
  return nb::steal(found);
}

nb::object call(nb::handle object, const nb::object& name) {
  PyObject* const result = PyObject_CallNoArgs(attribute(object, name).ptr());
  if (result == nullptr) throw nb::python_error();
  return nb::steal(result);
}

Shape numbers(const nb::object& tuple) {
  const Py_ssize_t count = PyTuple_Size(tuple.ptr());
  if (count < 0) throw nb::python_error();
  Shape result(static_cast<size_t>(count));
  for (Py_ssize_t i = 0; i < count; ++i) {
    result[static_cast<size_t>(i)] = PyLong_AsLongLong(PyTuple_GetItem(tuple.ptr(), i));
  }
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  return result;
}

Tensor view(void* data, Shape shape, Shape strides, DType dtype, const char* operation, const char* name) {
  alignas(64) static char nothing[64];
  if (data == nullptr) data = nothing;  // arrays without elements have no memory
  if (reinterpret_cast<uintptr_t>(data) % size_of(dtype) != 0)
    refuse(operation, name, "is not aligned to its elements");
  return Tensor::view(data, std::move(shape), dtype, std::move(strides));
}

Tensor view_of_torch(nb::handle object, const char* operation, const char* name) {
  if (attribute(object, torch->is_cpu).ptr() != Py_True) refuse_type(operation, name, object);
  const nb::object dtype = attribute(object, torch->dtype);
  DType type = DType::float32;
  if (dtype.is(torch->bfloat16)) {
    type = DType::bfloat16;
  } else if (dtype.is(torch->int32)) {
    type = DType::int32;
  } else if (!dtype.is(torch->float32)) {
    refuse(operation, name, "is " + std::string(nb::str(dtype).c_str()) + ", expected float32 or bfloat16");
  }
  void* const data = PyLong_AsVoidPtr(call(object, torch->data_ptr).ptr());
  if (PyErr_Occurred() != nullptr) throw nb::python_error();
  return view(data, numbers(attribute(object, torch->shape)), numbers(call(object, torch->stride)), type, operation,
              name);
}

DType type_of(const nb::dlpack::dtype& found, bool bits, const char* operation, const char* name) {
  using Code = nb::dlpack::dtype_code;
  const auto is = [&](Code code, int width) {
    return found.code == static_cast<uint8_t>(code) && found.bits == width && found.lanes == 1;
  };
  if (is(Code::Float, 32)) return DType::float32;
  if (is(Code::Bfloat, 16) || (bits && is(Code::UInt, 16))) return DType::bfloat16;
  if (is(Code::Int, 32)) return DType::int32;
  const char* const kind = found.code == static_cast<uint8_t>(Code::Float)  ? "float"
                           : found.code == static_cast<uint8_t>(Code::Int)  ? "int"
                           : found.code == static_cast<uint8_t>(Code::UInt) ? "uint"
                                                                            : "another type of bits ";
  refuse(operation, name, "is " + (kind + std::to_string(found.bits)) + ", expected float32 or bfloat16");
}

template <class T>
std::vector<T> values_of(nb::handle object, DType dtype, const char* operation, const char* name) {
  if (object.is_none()) return {};
  const Array array(object, operation, name);
  if (array.tensor.dtype() != dtype || !array.tensor.contiguous()) {
    refuse(operation, name, "is not a contiguous array of " + std::string(name_of(dtype)));
  }
  const T* const begin = array.tensor.data<T>();
  return {begin, begin + array.tensor.elements()};
}

}  // namespace

void set_torch(nb::object tensor, nb::object float32, nb::object bfloat16, nb::object int32) {
  if (torch != nullptr) return;
  torch = new Torch{std::move(tensor), std::move(float32), std::move(bfloat16), std::move(int32)};
}

Array::Array(nb::handle object, const char* operation, const char* name, bool bits) {
  // Not isinstance(), which PyTorch answers in Python.
  if (torch != nullptr && PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(object.type().ptr()),
                                           reinterpret_cast<PyTypeObject*>(torch->tensor.ptr())) != 0) {
    keeper_ = nb::borrow(object);
    tensor = view_of_torch(object, operation, name);
    return;
  }
  using Any = nb::ndarray<nb::ro, nb::device::cpu>;
  Any array;
  if (!nb::try_cast(object, array, false)) {
    PyErr_Clear();
    refuse_type(operation, name, object);
  }
  Shape shape, strides;
  for (size_t axis = 0; axis < array.ndim(); ++axis) {
    shape.push_back(static_cast<int64_t>(array.shape(axis)));
    strides.push_back(array.stride(axis));
  }
  tensor = view(const_cast<void*>(static_cast<const void*>(array.data())), std::move(shape), std::move(strides),
                type_of(array.dtype(), bits, operation, name), operation, name);
  keeper_ = nb::borrow(object);
}

std::vector<float> floats_of(nb::handle object, const char* operation, const char* name) {
  return values_of<float>(object, DType::float32, operation, name);
}

std::vector<int32_t> ints_of(nb::handle object, const char* operation, const char* name) {
  return values_of<int32_t>(object, DType::int32, operation, name);
}

}  // namespace alibi::python
