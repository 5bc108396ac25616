// Computes without the interpreter's lock, calls back into Python, and ends at Ctrl-C.
#pragma once

#include <nanobind/nanobind.h>

#include <chrono>
#include <exception>
#include <optional>
#include <type_traits>

#include "alibi/error.h"
#include "alibi/interrupt.h"
#include "lock.h"

namespace alibi::python {

/// Calls a Python function, or nothing for None, and checks for Ctrl-C. An exception from Python is kept until the work
/// ends, and nothing is called after it.
class Callbacks {
 public:
  explicit Callbacks(nb::handle function = nb::none()) : function_(function) {}

  /// Calls it with what `arguments`, a function that is called with the lock, makes. False: it returned False, or
  /// raised.
  template <class Arguments>
  bool call(const Arguments& arguments) {
    if (function_.is_none()) return look_for_signals();
    return run([&] { return !is_false(nb::borrow(function_)(arguments())); });
  }
  /// False if Python wants to end. Asks it some times a second at most: others may hold the lock.
  bool look_for_signals() {
    if (Clock::now() - looked_ < std::chrono::milliseconds(50)) return !stopped();
    return run([] { return true; });
  }
  bool stopped() const { return error_ != nullptr; }
  void rethrow() const {
    if (error_) std::rethrow_exception(error_);
  }

 private:
  using Clock = std::chrono::steady_clock;

  template <class Work>
  bool run(const Work& work) {
    if (stopped()) return false;
    if (is_exiting()) return fail(std::make_exception_ptr(Error("[alibi] the interpreter exits; the call was ended")));
    const WithLock locked;
    return call_python([&] {
      try {
        const bool goes_on = work();
        if (PyErr_CheckSignals() != 0) throw nb::python_error();
        looked_ = Clock::now();
        return goes_on;
      } catch (const std::exception&) {
        return fail(std::current_exception());
      }
    });
  }
  bool fail(std::exception_ptr error) {
    error_ = std::move(error);
    return false;
  }
  /// False itself, or NumPy's.
  static bool is_false(nb::handle answer) {
    if (answer.is(nb::handle(Py_False))) return true;
    const nb::str name = nb::borrow<nb::str>(answer.type().attr("__name__"));
    const bool of_numpy = name.equal(nb::str("bool_")) || name.equal(nb::str("bool"));
    return of_numpy && PyObject_IsTrue(answer.ptr()) == 0;
  }

  nb::handle function_;
  Clock::time_point looked_ = Clock::now();
  std::exception_ptr error_;
};

/// Thrown through the library, which has no other way to be stopped, when there is an exception from Python.
struct Stopped {};

/// Returns compute(), which runs without the lock. Ctrl-C ends it wherever the library checks for interrupts; then
/// throws what was raised in Python.
template <class Compute>
auto computed(Callbacks& callbacks, const Compute& compute) {
  std::optional<std::conditional_t<std::is_void_v<decltype(compute())>, bool, decltype(compute())>> result;
  try {
    const WithoutLock others_run;
    const InterruptScope scope([&] {
      if (!callbacks.look_for_signals()) throw Stopped{};
    });
    if constexpr (std::is_void_v<decltype(compute())>) {
      compute();
      result = true;
    } else {
      result.emplace(compute());
    }
  } catch (const Stopped&) {
  }
  callbacks.rethrow();
  return std::move(*result);
}
template <class Compute>
auto computed(const Compute& compute) {
  Callbacks callbacks;
  return computed(callbacks, compute);
}

}  // namespace alibi::python
