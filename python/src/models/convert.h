// Converts values of the library to Python's and back. With the interpreter's lock.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "alibi/error.h"
#include "alibi/language_model.h"
#include "alibi/model_options.h"
#include "alibi/tensor.h"
#include "alibi/tokenizer.h"
#include "alibi/train_options.h"
#include "alibi/training_data.h"
#include "arrays.h"

namespace alibi::python {

/// A NumPy array that owns the values.
template <class T>
nb::object array_of(std::vector<T> values) {
  auto* const held = new std::vector<T>(std::move(values));
  const nb::capsule owner(held, [](void* p) noexcept { delete static_cast<std::vector<T>*>(p); });
  const size_t size = held->size();
  return nb::ndarray<nb::numpy, T>(held->data(), 1, &size, owner).cast();
}
/// Of a contiguous float32 tensor, without a copy.
nb::object array_of(Tensor tensor);

/// What is no UTF-8 is replaced: a model of bytes may write anything.
nb::object text_of(std::string_view bytes);

/// int32, one axis or two.
Tensor ids_of(nb::handle array, const char* operation);
std::span<const int32_t> tokens_of(const Tensor& ids);

/// Sets the options of training that `given` has. Returns those of the model.
/// `resumed` is the precision of the run that continues; "auto" keeps it.
ModelOptions take_options(TrainOptions& options, const nb::dict& given, std::optional<Precision> resumed,
                          const char* operation);

TokenizerChoice tokenizer_of(const nb::dict& given);

/// What LanguageModel.generate(), its stream() and Engine.submit() have in common.
GenerateOptions generate_options(const nb::dict& given);

}  // namespace alibi::python
