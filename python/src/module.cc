// The module _core, thin: the package's Python is what users call.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <string_view>
#include <vector>

#include "alibi/attention.h"
#include "alibi/error.h"
#include "alibi/runtime.h"
#include "alibi/version.h"
#include "alibi/warning.h"
#include "arguments.h"
#include "arrays.h"
#include "bindings.h"
#include "lock.h"
#include "torch_tensors.h"

namespace nb = nanobind;
using namespace nb::literals;

NB_MODULE(_core, m) {
  // The later one is tried first.
  const nb::exception<alibi::Error> error(m, "Error", PyExc_RuntimeError);
  const nb::exception<alibi::UsageError> usage_error(m, "UsageError",
                                                     nb::make_tuple(error, nb::handle(PyExc_ValueError)));
  for (const nb::handle type : {nb::handle(error), nb::handle(usage_error)})
    type.attr("__module__") = "alibi_attention";

  m.attr("version") = std::string(alibi::version);
  m.def(
      "slopes",
      [](nb::handle heads, nb::handle bias_max) {
        const int64_t count = alibi::python::integer(heads, "slopes", "heads");
        constexpr int64_t most = 1 << 24;
        if (count > most) alibi::python::refuse_value(heads, "slopes", "heads", "at most 2^24");
        return alibi::slopes(static_cast<int>(count), alibi::python::real(bias_max, "slopes", "bias_max"));
      },
      "heads"_a, "bias_max"_a);
  m.def("threads", &alibi::threads);
  m.def(
      "set_threads",
      [](nb::handle count) {
        const int64_t threads = alibi::python::integer(count, "set_threads", "count");
        constexpr int64_t most = 1024;
        if (threads < 1 || threads > most) alibi::python::refuse_value(count, "set_threads", "count", "1 to 1024");
        const alibi::python::WithoutLock others_run;
        alibi::set_threads(static_cast<int>(threads));
      },
      "count"_a);
  m.def("isa", [] { return std::string(alibi::name_of(alibi::isa())); });
  // Plain arguments: the value, or an error that names the argument.
  const auto def_argument = [&m](const char* type, auto convert) {
    m.def(
        type,
        [convert](const char* operation, const char* name, nb::handle value) {
          return convert(value, operation, name);
        },
        "operation"_a, "name"_a, "value"_a.none());
  };
  def_argument("integer", &alibi::python::integer);
  def_argument("real", &alibi::python::real);
  def_argument("flag", &alibi::python::flag);
  m.def("set_numpy", &alibi::python::set_numpy, "array"_a, "float32"_a, "float16"_a, "int32"_a, "empty"_a,
        "empty_like"_a, "probe"_a);
  m.def("set_torch", &alibi::python::set_torch, "module"_a);
  m.def("follow_torch_threads", &alibi::python::follow_torch_threads);
  m.def("has_cuda", [] {
    try {
      alibi::Tensor::view(nullptr, {0}, alibi::DType::float32, {}, alibi::Device::cuda);
    } catch (const alibi::Error&) {
      return false;
    }
    return true;
  });
  alibi::python::bind_lock(m);
  alibi::python::bind_attention(m);
  alibi::python::bind_positions(m);
  alibi::python::bind_cache(m);
#ifdef ALIBI_PYTHON_MODELS
  alibi::set_warning_handler([](std::string_view warning) {
    const nb::gil_scoped_acquire python;
    if (PyErr_WarnEx(PyExc_UserWarning, std::string(warning).c_str(), 1) != 0) throw nb::python_error();
  });
  m.attr("has_models") = true;
  alibi::python::bind_model(m);
  alibi::python::bind_loglikelihood(m);
  alibi::python::bind_engine(m);
  alibi::python::bind_encoder(m);
  alibi::python::bind_tokenizer(m);
  alibi::python::bind_training(m);
  alibi::python::bind_compare(m);
#else
  m.attr("has_models") = false;
#endif
}
