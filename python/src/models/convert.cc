#include "models/convert.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <variant>

#include "alibi/model_options.h"
#include "alibi/train_options.h"

namespace alibi::python {
namespace {

template <class T>
T cast(nb::handle value, const char* operation, const char* name, const char* expected) {
  try {
    return nb::cast<T>(value);
  } catch (const std::bad_cast&) {
    throw nb::type_error(("[" + std::string(operation) + "] " + name + " is a " + nb::type_name(value.type()).c_str() +
                          ", expected " + expected)
                             .c_str());
  }
}

void check_range(const OptionRange& range, double x, const char* operation, const char* name) {
  if (range.contains(x)) return;
  std::string expected;
  const auto add = [&](const char* words, const std::optional<double>& limit) {
    if (!limit) return;
    std::string number = std::to_string(*limit);
    number.erase(number.find_last_not_of('0') + 1);
    if (number.back() == '.') number.pop_back();
    expected += (expected.empty() ? "" : " and ") + std::string(words) + number;
  };
  add("at least ", range.least);
  add("above ", range.above);
  add("at most ", range.most);
  add("below ", range.below);
  throw UsageError("[" + std::string(operation) + "] " + name + " is " + std::to_string(x) + ", expected a number " +
                   expected);
}

/// Of the kind that `now` has.
OptionValue value_of(nb::handle given, const OptionValue& now, const OptionRange& range, const char* operation,
                     const char* name) {
  return std::visit(
      [&](const auto& kind) -> OptionValue {
        using T = std::decay_t<decltype(kind)>;
        if constexpr (std::is_same_v<T, bool>) {
          return cast<bool>(given, operation, name, "True or False");
        } else if constexpr (std::is_same_v<T, std::string>) {
          return cast<std::string>(given, operation, name, "a str");
        } else if constexpr (std::is_same_v<T, std::vector<double>>) {
          auto numbers = cast<std::vector<double>>(given, operation, name, "numbers");
          for (const double x : numbers) check_range(range, x, operation, name);
          return numbers;
        } else {
          const T number = cast<T>(given, operation, name, std::is_same_v<T, double> ? "a number" : "an integer");
          check_range(range, static_cast<double>(number), operation, name);
          return number;
        }
      },
      now);
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
    throw UsageError("[" + std::string(operation) + "] ids are " + name_of(ids.tensor.dtype()) + ", expected int32");
  }
  return ids.tensor.clone();
}

std::span<const int32_t> tokens_of(const Tensor& ids) {
  return {ids.data<int32_t>(), static_cast<size_t>(ids.elements())};
}

/// What `given` has under the option's name or its former name, taken out of it; empty: nothing.
template <class Options>
nb::object taken(const Option<Options>& option, nb::dict& given, const char* operation) {
  nb::object value;
  for (const char* name : {option.name, option.older_name}) {
    if (!name || !given.contains(name)) continue;
    if (value.is_valid()) {
      throw UsageError("[" + std::string(operation) + "] " + name + " is the former name of " + option.name +
                       "; give one of them");
    }
    value = given[name];
    nb::del(given[name]);
  }
  return value;
}

template <class Options>
void take_options(Options& options, nb::dict& given, const char* operation) {
  const Options usual;
  for (const Option<Options>& option : options_of<Options>) {
    // As the command does: what is said in another way is not said here.
    if (option.instead_of && given.contains(option.instead_of)) option.set(options, option.get(usual));
  }
  for (const Option<Options>& option : options_of<Options>) {
    const nb::object value = taken(option, given, operation);
    if (option.automatic && (!value.is_valid() || value.equal(nb::str("auto")))) {
      option.set(options, std::string(option.automatic()));
    } else if (value.is_valid()) {
      option.set(options, value_of(value, option.get(options), option.range, operation, option.name));
    }
  }
}
template void take_options(TrainOptions&, nb::dict&, const char*);

ModelOptions take_model_options(nb::dict& given, const char* operation) {
  ModelOptions options;
  const LanguageModelConfig usual;
  for (const ConfigField& field : options_of<LanguageModelConfig>) {
    const nb::object value = taken(field, given, operation);
    if (value.is_valid()) {
      options.set(field.name, value_of(value, field.get(usual), field.range, operation, field.name));
    }
  }
  return options;
}

void refuse_rest(const nb::dict& given, const char* operation) {
  if (given.size() == 0) return;
  std::string known;
  for (const auto& option : options_of<TrainOptions>) known += std::string(known.empty() ? "" : ", ") + option.name;
  for (const auto& option : options_of<LanguageModelConfig>) known += std::string(", ") + option.name;
  const nb::object first = given.keys()[0];
  throw UsageError("[" + std::string(operation) + "] there is no option '" + nb::cast<std::string>(first) +
                   "'; choose from " + known);
}

TokenizerChoice tokenizer_of(const nb::dict& given) {
  TokenizerChoice choice;
  choice.kind = nb::cast<std::string>(given["kind"]);
  choice.vocab_size = nb::cast<int64_t>(given["vocab_size"]);
  choice.min_count = nb::cast<int64_t>(given["min_count"]);
  choice.like = nb::cast<std::string>(given["like"]);
  return choice;
}

}  // namespace alibi::python
