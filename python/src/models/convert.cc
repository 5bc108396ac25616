#include "models/convert.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <climits>
#include <variant>

#include "alibi/hub.h"
#include "alibi/train_options.h"
#include "arguments.h"

namespace alibi::python {
namespace {

/// Of the type that `like` has.
OptionValue value_of(nb::handle given, const OptionValue& like, const char* operation, const char* name) {
  return std::visit(
      [&](const auto& kind) -> OptionValue {
        using T = std::decay_t<decltype(kind)>;
        if constexpr (std::is_same_v<T, bool>) {
          return flag(given, operation, name);
        } else if constexpr (std::is_same_v<T, std::string>) {
          return text(given, operation, name);
        } else if constexpr (std::is_same_v<T, double>) {
          return real(given, operation, name);
        } else if constexpr (std::is_same_v<T, int64_t>) {
          return integer(given, operation, name);
        } else if constexpr (std::is_same_v<T, uint64_t>) {
          const nb::object index = nb::steal(PyNumber_Index(given.ptr()));
          if (!index.is_valid()) refuse_type(given, operation, name, "an integer");
          const uint64_t number = PyLong_AsUnsignedLongLong(index.ptr());
          if (PyErr_Occurred() != nullptr) refuse_value(given, operation, name, "0 to 18446744073709551615");
          return number;
        } else {
          T numbers;
          if (nb::isinstance<nb::str>(given) || !nb::try_cast<T>(given, numbers)) {
            refuse_type(given, operation, name, "a list of numbers");
          }
          return numbers;
        }
      },
      like);
}

}  // namespace

nb::object array_of(Tensor tensor) {
  auto* const held = new Tensor(std::move(tensor));
  const nb::capsule owner(held, [](void* p) noexcept { delete static_cast<Tensor*>(p); });
  std::vector<size_t> shape;
  for (const int64_t extent : held->shape()) shape.push_back(static_cast<size_t>(extent));
  return nb::ndarray<nb::numpy, float>(held->data<float>(), shape.size(), shape.data(), owner).cast();
}

nb::object text_of(std::string_view bytes) {
  PyObject* const text = PyUnicode_DecodeUTF8(bytes.data(), static_cast<Py_ssize_t>(bytes.size()), "replace");
  if (text == nullptr) throw nb::python_error();
  return nb::steal(text);
}

Tensor ids_of(nb::handle array, const char* operation) {
  const Array ids(array, operation, "ids");
  if (ids.tensor.dtype() != DType::int32) {
    refuse(operation, "ids", std::string("are ") + name_of(ids.tensor.dtype()) + ", expected int32");
  }
  return ids.tensor.clone();
}

std::span<const int32_t> tokens_of(const Tensor& ids) {
  return {ids.data<int32_t>(), static_cast<size_t>(ids.elements())};
}

ModelOptions take_options(TrainOptions& options, const nb::dict& given, std::optional<Precision> resumed,
                          const char* operation) {
  std::vector<std::string> names;
  for (const auto& [name, value] : given) names.push_back(nb::cast<std::string>(name));
  ModelOptions model;
  set_options(
      options, model, names,
      [&](const std::string& name, const OptionValue& like) {
        return value_of(given[name.c_str()], like, operation, name.c_str());
      },
      operation);
  const bool is_automatic = !given.contains("precision") || nb::cast<std::string>(given["precision"]) == "auto";
  if (resumed && is_automatic) options.precision = *resumed;
  return model;
}

TokenizerChoice tokenizer_of(const nb::dict& given) {
  TokenizerChoice choice;
  choice.kind = nb::cast<std::string>(given["kind"]);
  choice.vocab_size = nb::cast<int64_t>(given["vocab_size"]);
  choice.min_count = nb::cast<int64_t>(given["min_count"]);
  choice.like = find_model(nb::cast<std::string>(given["like"])).string();
  return choice;
}

GenerateOptions generate_options(const nb::dict& given) {
  GenerateOptions options;
  options.max_tokens = nb::cast<int64_t>(given["max_tokens"]);
  options.temperature = nb::cast<double>(given["temperature"]);
  // The library has an int. More than all tokens are all tokens.
  options.top_k = static_cast<int>(std::clamp<int64_t>(nb::cast<int64_t>(given["top_k"]), INT_MIN, INT_MAX));
  options.top_p = nb::cast<double>(given["top_p"]);
  options.min_p = nb::cast<double>(given["min_p"]);
  options.repetition_penalty = nb::cast<double>(given["repetition_penalty"]);
  options.presence_penalty = nb::cast<double>(given["presence_penalty"]);
  options.frequency_penalty = nb::cast<double>(given["frequency_penalty"]);
  for (const auto [id, bias] : nb::cast<nb::dict>(given["logit_bias"])) {
    options.logit_bias[nb::cast<int32_t>(id)] = nb::cast<float>(bias);
  }
  options.seed = nb::cast<uint64_t>(given["seed"]);
  options.stop_at_end_of_text = nb::cast<bool>(given["stop_at_end_of_text"]);
  const nb::object stop = given["stop"];
  if (nb::isinstance<nb::str>(stop)) {
    options.stop = {nb::cast<std::string>(stop)};
  } else {
    options.stop = nb::cast<std::vector<std::string>>(stop);
  }
  return options;
}

}  // namespace alibi::python
