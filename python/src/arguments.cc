#include "arguments.h"

#include <nanobind/stl/string.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "alibi/error.h"

namespace alibi::python {
namespace {

std::string message(nb::handle value, const char* operation, const char* name, const char* expected,
                    const std::string& of_type) {
  PyErr_Clear();
  const nb::object shown = nb::steal(PyObject_Repr(value.ptr()));
  const char* found = shown.is_valid() ? PyUnicode_AsUTF8AndSize(shown.ptr(), nullptr) : nullptr;
  constexpr size_t most = 80;
  std::string text = found != nullptr ? found : "an object";
  PyErr_Clear();
  if (text.size() > most) {
    text.resize(most);
    while ((static_cast<unsigned char>(text.back()) & 0xC0) == 0x80) text.pop_back();  // within a character
    if (static_cast<unsigned char>(text.back()) >= 0xC0) text.pop_back();
    text += "...";
  }
  return "[" + std::string(operation) + "] " + name + " is " + text + of_type + ", expected " + expected;
}

/// Of NumPy's and PyTorch's scalars and arrays: false for those with axes and for complex numbers.
bool is_one_real(nb::handle value) {
  const nb::object shape = nb::getattr(value, "shape", nb::none()), dtype = nb::getattr(value, "dtype", nb::none());
  if (!shape.is_none() && PyObject_Size(shape.ptr()) != 0) return false;
  if (dtype.is_none()) return true;
  const nb::object kind = nb::getattr(dtype, "kind", nb::none());
  if (!kind.is_none()) return std::strchr("iuf", nb::cast<std::string>(kind).c_str()[0]) != nullptr;
  return !nb::cast<bool>(nb::getattr(dtype, "is_complex", nb::bool_(false)));
}

bool has_float(nb::handle value) { return nb::hasattr(value.type(), "__float__"); }

}  // namespace

void refuse(const char* operation, const char* name, const std::string& why) {
  throw UsageError("[" + std::string(operation) + "] " + name + " " + why);
}

void refuse_type(nb::handle value, const char* operation, const char* name, const char* expected) {
  const std::string type = nb::type_name(value.type()).c_str();
  throw nb::type_error(message(value, operation, name, expected, " of type " + type).c_str());
}

void refuse_value(nb::handle value, const char* operation, const char* name, const char* expected) {
  throw UsageError(message(value, operation, name, expected, ""));
}

int64_t integer(nb::handle value, const char* operation, const char* name) {
  const nb::object index = nb::steal(PyNumber_Index(value.ptr()));
  if (!index.is_valid()) refuse_type(value, operation, name, "an integer");
  const int64_t number = PyLong_AsLongLong(index.ptr());
  if (number == -1 && PyErr_Occurred() != nullptr) refuse_value(value, operation, name, "an integer of 64 bits");
  return number;
}

double real(nb::handle value, const char* operation, const char* name) {
  const bool plain = PyFloat_CheckExact(value.ptr()) || PyLong_Check(value.ptr());
  if (!plain && !(has_float(value) && is_one_real(value))) refuse_type(value, operation, name, "a number");
  const double number = PyFloat_AsDouble(value.ptr());
  if (number == -1 && PyErr_Occurred() != nullptr) {
    if (PyErr_ExceptionMatches(PyExc_OverflowError)) refuse_value(value, operation, name, "a finite number");
    refuse_type(value, operation, name, "a number");
  }
  if (!std::isfinite(number)) refuse_value(value, operation, name, "a finite number");
  return number;
}

float single(nb::handle value, const char* operation, const char* name) {
  const double number = real(value, operation, name);
  // The conversion of a number beyond float32 is undefined.
  if (std::abs(number) > static_cast<double>(std::numeric_limits<float>::max()) ||
      (number != 0 && static_cast<float>(number) == 0)) {
    refuse_value(value, operation, name, "a number that float32 can hold: 0, or a magnitude of 1e-45 to 3e38");
  }
  return static_cast<float>(number);
}

bool flag(nb::handle value, const char* operation, const char* name) {
  if (value.ptr() == Py_True || value.ptr() == Py_False) return value.ptr() == Py_True;
  constexpr const char* expected = "True or False";
  const std::string type = nb::type_name(value.type()).c_str();
  if (type == "numpy.bool" || type == "numpy.bool_") return PyObject_IsTrue(value.ptr()) == 1;
  const nb::object index = nb::steal(PyNumber_Index(value.ptr()));
  if (!index.is_valid()) refuse_type(value, operation, name, expected);
  const long number = PyLong_AsLong(index.ptr());
  if (number != 0 && number != 1) refuse_value(value, operation, name, expected);
  return number == 1;
}

std::string text(nb::handle value, const char* operation, const char* name) {
  if (!PyUnicode_Check(value.ptr())) refuse_type(value, operation, name, "a string");
  Py_ssize_t size = 0;
  const char* const begin = PyUnicode_AsUTF8AndSize(value.ptr(), &size);
  if (begin == nullptr) refuse_value(value, operation, name, "a string that UTF-8 can hold");
  return {begin, static_cast<size_t>(size)};
}

}  // namespace alibi::python
