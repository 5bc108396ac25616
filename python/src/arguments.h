// Plain arguments of Python's callers. What does not fit raises TypeError (a wrong type) or UsageError (a wrong value)
// that names the argument and shows what was found.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <string>

namespace alibi::python {

namespace nb = nanobind;

/// An integer of 64 bits, of Python, NumPy or anything else with __index__.
int64_t integer(nb::handle value, const char* operation, const char* name);
/// A finite number: not a string, not complex, and no array with axes.
double real(nb::handle value, const char* operation, const char* name);
/// One that is rounded to float32; a number other than 0 that would become 0 or infinite is refused.
float single(nb::handle value, const char* operation, const char* name);
/// True or False, of Python or NumPy, or 1 or 0.
bool flag(nb::handle value, const char* operation, const char* name);
std::string text(nb::handle value, const char* operation, const char* name);

/// UsageError: "[operation] name why".
[[noreturn]] void refuse(const char* operation, const char* name, const std::string& why);
[[noreturn]] void refuse_type(nb::handle value, const char* operation, const char* name, const char* expected);
[[noreturn]] void refuse_value(nb::handle value, const char* operation, const char* name, const char* expected);

}  // namespace alibi::python
