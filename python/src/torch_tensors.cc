#include "torch_tensors.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <string>

#include "alibi/error.h"
#include "alibi/runtime.h"
#include "arguments.h"
#include "arrays.h"
#include "lock.h"

namespace alibi::python {
namespace {

/// A tensor in PyTorch's C functions: the address of an at::Tensor, which is one pointer to the tensor itself.
using Handle = void*;

/// The functions return 0, or another number if they failed. Left to the end of the process: what Python holds cannot
/// be released after the interpreter.
struct Torch {
  nb::object module, tensor, is_neg, get_num_threads;
  nb::object address = nb::str("_cdata");
  int32_t (*from_python)(void* object, Handle* tensor) = nullptr;            // since 2.14
  int32_t (*to_python)(Handle tensor, void* type, void** object) = nullptr;  // since 2.14
  int32_t (*release)(Handle tensor) = nullptr;
  int32_t (*axes)(Handle tensor, int64_t* count) = nullptr;
  int32_t (*sizes)(Handle tensor, int64_t** first) = nullptr;
  int32_t (*strides)(Handle tensor, int64_t** first) = nullptr;
  int32_t (*storage_offset)(Handle tensor, int64_t* elements) = nullptr;
  int32_t (*storage_size)(Handle tensor, int64_t* bytes) = nullptr;
  int32_t (*data)(Handle tensor, void** address) = nullptr;
  int32_t (*dtype)(Handle tensor, int32_t* code) = nullptr;
  int32_t (*device)(Handle tensor, int32_t* code) = nullptr;
  int32_t (*layout)(Handle tensor, int32_t* code) = nullptr;
  int32_t (*empty)(int64_t axes, const int64_t* sizes, const int64_t* strides, int32_t dtype, int32_t device,
                   int32_t device_index, Handle* tensor) = nullptr;
  int32_t strided = 0, cpu = 0, cuda = 0;
  std::array<std::pair<DType, int32_t>, 4> dtypes;
};
Torch* torch = nullptr;

constexpr bool emulated_gpu =
#ifdef ALIBI_PYTHON_EMULATED_GPU
    true;
#else
    false;
#endif

/// Holds the tensor of an object of Python.
class Held {
 public:
  explicit Held(nb::handle object) {
    if (torch->from_python != nullptr) {
      if (torch->from_python(object.ptr(), &handle_) != 0) handle_ = nullptr;
      return;
    }
    const nb::object address = nb::steal(PyObject_GetAttr(object.ptr(), torch->address.ptr()));
    if (!address.is_valid()) throw nb::python_error();
    tensor_ = PyLong_AsVoidPtr(address.ptr());
    if (PyErr_Occurred() != nullptr) throw nb::python_error();
    handle_ = &tensor_;
  }
  ~Held() {
    if (handle_ != nullptr && handle_ != &tensor_) torch->release(handle_);
  }
  Held(const Held&) = delete;
  Held& operator=(const Held&) = delete;

  Handle get() const { return handle_; }

 private:
  void* tensor_ = nullptr;
  Handle handle_ = nullptr;
};

/// str() of an attribute.
std::string shown(nb::handle object, const char* attribute) {
  const nb::object value = object.attr(attribute);
  return nb::str(value).c_str();
}

DType dtype_of(int32_t code, nb::handle object, const char* operation, const char* name) {
  for (const auto& [dtype, known] : torch->dtypes) {
    if (known == code) return dtype;
  }
  const std::string found = shown(object, "dtype");
  refuse(operation, name, "is " + found.substr(found.find('.') + 1) + ", expected float32, bfloat16 or float16");
}

int32_t code_of(DType dtype) {
  for (const auto& [known, code] : torch->dtypes) {
    if (known == dtype) return code;
  }
  throw Error("[torch] there is no such type of elements");
}

}  // namespace

void set_torch(const nb::object& module) {
  if (torch != nullptr) return;
  const std::string path = shown(module.attr("_C"), "__file__");
  void* const library = ::dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
  const auto find = [&](auto& function, const char* name) {
    if (library != nullptr)
      function = reinterpret_cast<std::remove_reference_t<decltype(function)>>(::dlsym(library, name));
    return function != nullptr;
  };
  const auto need = [&](auto& function, const char* name) {
    if (find(function, name)) return;
    throw Error("[torch] PyTorch " + shown(module, "__version__") + " has no function " + name +
                ", expected PyTorch 2.9 or newer");
  };
  const auto constant = [&](const char* name) {
    int32_t (*function)() = nullptr;
    need(function, name);
    return function();
  };
  Torch found;
  if (!find(found.from_python, "torch_tensor_from_pyobject") || !find(found.to_python, "torch_tensor_to_pyobject")) {
    found.from_python = nullptr;
  }
  need(found.release, "aoti_torch_delete_tensor_object");
  need(found.axes, "aoti_torch_get_dim");
  need(found.sizes, "aoti_torch_get_sizes");
  need(found.strides, "aoti_torch_get_strides");
  need(found.storage_offset, "aoti_torch_get_storage_offset");
  need(found.storage_size, "aoti_torch_get_storage_size");
  need(found.data, "aoti_torch_get_data_ptr");
  need(found.dtype, "aoti_torch_get_dtype");
  need(found.device, "aoti_torch_get_device_type");
  need(found.layout, "aoti_torch_get_layout");
  need(found.empty, "aoti_torch_empty_strided");
  found.strided = constant("aoti_torch_layout_strided");
  found.cpu = constant("aoti_torch_device_type_cpu");
  found.cuda = constant("aoti_torch_device_type_cuda");
  found.dtypes = {std::pair{DType::float32, constant("aoti_torch_dtype_float32")},
                  {DType::bfloat16, constant("aoti_torch_dtype_bfloat16")},
                  {DType::float16, constant("aoti_torch_dtype_float16")},
                  {DType::int32, constant("aoti_torch_dtype_int32")}};
  found.module = module;
  found.tensor = module.attr("Tensor");
  found.is_neg = found.tensor.attr("is_neg");
  found.get_num_threads = module.attr("get_num_threads");
  torch = new Torch(std::move(found));
}

bool is_torch(nb::handle object) {
  // Not isinstance(), which PyTorch answers in Python.
  return torch != nullptr && PyType_IsSubtype(reinterpret_cast<PyTypeObject*>(object.type().ptr()),
                                              reinterpret_cast<PyTypeObject*>(torch->tensor.ptr())) != 0;
}

bool is_negative_view(nb::handle tensor) {
  const nb::object answer = nb::steal(PyObject_CallFunctionObjArgs(torch->is_neg.ptr(), tensor.ptr(), nullptr));
  if (!answer.is_valid()) throw nb::python_error();
  return answer.ptr() == Py_True;
}

void follow_torch_threads() {
  const nb::object found = nb::steal(PyObject_CallNoArgs(torch->get_num_threads.ptr()));
  if (!found.is_valid()) throw nb::python_error();
  const auto count = nb::cast<int>(found);
  if (count == threads()) return;
  const WithoutLock others_run;
  set_threads(count);
}

Tensor view_of_torch(nb::handle object, const char* operation, const char* name, Device device) {
  const Held held(object);
  const Handle tensor = held.get();
  int32_t layout = 0, place = 0, code = 0;
  if (tensor == nullptr || torch->layout(tensor, &layout) != 0) refuse_memory(object, operation, name, device);
  if (layout != torch->strided) {
    refuse(operation, name, "has layout " + shown(object, "layout") + ", expected torch.strided: a dense tensor");
  }
  if (torch->device(tensor, &place) != 0 ||
      place != (device == Device::cuda && !emulated_gpu ? torch->cuda : torch->cpu)) {
    refuse_memory(object, operation, name, device);
  }
  int64_t axes = 0, offset = 0, there = 0;
  int64_t *sizes = nullptr, *strides = nullptr;
  void* data = nullptr;
  if (torch->dtype(tensor, &code) != 0) refuse_memory(object, operation, name, device);
  const DType dtype = dtype_of(code, object, operation, name);
  if (torch->axes(tensor, &axes) != 0 || torch->sizes(tensor, &sizes) != 0 || torch->strides(tensor, &strides) != 0 ||
      torch->storage_offset(tensor, &offset) != 0 || torch->storage_size(tensor, &there) != 0 ||
      torch->data(tensor, &data) != 0) {
    refuse_memory(object, operation, name, device);
  }
  Shape shape(sizes, sizes + axes);
  // A storage may have been freed or shortened under its tensors, as FSDP does with parameters. Then their addresses
  // mean nothing.
  int64_t end = offset + 1;
  for (int64_t axis = 0; axis < axes; ++axis) end += strides[axis] * (sizes[axis] - 1);
  end *= static_cast<int64_t>(size_of(dtype));
  if (end > there && std::find(shape.begin(), shape.end(), 0) == shape.end()) {
    refuse(operation, name,
           "has shape " + to_string(shape) + ", but its storage has only " + std::to_string(there) + " of " +
               std::to_string(end) + " bytes; expected a tensor whose memory was not freed");
  }
  return view(data, std::move(shape), Shape(strides, strides + axes), dtype, operation, name, device);
}

std::pair<nb::object, Tensor> empty_torch(const Shape& shape, DType dtype) {
  if (torch->to_python == nullptr) {
    nb::object made =
        torch->module.attr("empty")(tuple_of(shape), nb::arg("dtype") = torch->module.attr(name_of(dtype)));
    Tensor tensor = view_of_torch(made, "torch", "a new tensor", Device::cpu);
    return {std::move(made), std::move(tensor)};
  }
  Shape strides(shape.size());
  int64_t step = 1;
  for (size_t axis = shape.size(); axis-- > 0;) {
    strides[axis] = step;
    step *= std::max<int64_t>(shape[axis], 1);
  }
  Handle tensor = nullptr;
  void *object = nullptr, *data = nullptr;
  const auto check = [&](int32_t failed) {
    if (failed == 0) return;
    if (tensor != nullptr) torch->release(tensor);
    throw Error("[torch] PyTorch cannot make a tensor of shape " + to_string(shape));
  };
  check(torch->empty(static_cast<int64_t>(shape.size()), shape.data(), strides.data(), code_of(dtype), torch->cpu, 0,
                     &tensor));
  check(torch->data(tensor, &data));
  check(torch->to_python(tensor, nullptr, &object));
  torch->release(tensor);
  return {nb::steal(static_cast<PyObject*>(object)),
          view(data, shape, std::move(strides), dtype, "torch", "a new tensor")};
}

}  // namespace alibi::python
