// Calls back into Python from work that runs without the interpreter's lock.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <exception>

namespace alibi::python {

namespace nb = nanobind;

/// Calls a Python function, or nothing for None, and checks for Ctrl-C at each call. An exception from Python is kept
/// until the work ends, and nothing is called after it.
class Callbacks {
 public:
  explicit Callbacks(nb::handle function) : function_(function) {}

  /// Calls it with what `arguments`, a function that is called with the lock, makes. False: it returned False, or
  /// raised.
  template <class Arguments>
  bool call(const Arguments& arguments) {
    if (stopped()) return false;
    if (function_.is_none()) return look_for_signals();
    const nb::gil_scoped_acquire locked;
    try {
      const nb::object answer = nb::borrow(function_)(arguments());
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      looked_ = Clock::now();
      return !answer.is(nb::handle(Py_False));
    } catch (...) {
      error_ = std::current_exception();
      return false;
    }
  }
  /// False if Python wants to end. Asks it some times a second at most: others may hold the lock.
  bool look_for_signals() {
    if (stopped()) return false;
    const auto now = Clock::now();
    if (now - looked_ < std::chrono::milliseconds(50)) return true;
    const nb::gil_scoped_acquire locked;
    looked_ = now;
    if (PyErr_CheckSignals() == 0) return true;
    error_ = std::make_exception_ptr(nb::python_error());
    return false;
  }
  bool stopped() const { return error_ != nullptr; }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  using Clock = std::chrono::steady_clock;
  nb::handle function_;
  Clock::time_point looked_;
  std::exception_ptr error_;
};

}  // namespace alibi::python
