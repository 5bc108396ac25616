// PyTorch's tensors, through the C functions that PyTorch keeps from version to version (torch/csrc/stable/c/shim.h).
#pragma once

#include <nanobind/nanobind.h>

#include <utility>

#include "alibi/tensor.h"

namespace alibi::python {

namespace nb = nanobind;

/// Takes the module torch, 2.9 or newer. Before, no object is a tensor.
void set_torch(const nb::object& module);
bool is_torch(nb::handle object);
/// Whether the values are the opposite of those in memory (torch._neg_view).
bool is_negative_view(nb::handle tensor);
/// The library uses as many threads as PyTorch from here on.
void follow_torch_threads();

/// The memory of a dense tensor on that device, for as long as `tensor` lives. Throws UsageError that names it if its
/// type is not supported or its memory was freed; TypeError if there is no such memory.
Tensor view_of_torch(nb::handle tensor, const char* operation, const char* name, Device device);
/// A tensor on the CPU, contiguous, whose values are not set, and its memory.
std::pair<nb::object, Tensor> empty_torch(const Shape& shape, DType dtype);

}  // namespace alibi::python
