// The interpreter's lock: computing without it, and what happens to threads when the interpreter ends.
//
// A thread that asks for the lock of an ending interpreter is ended by Python (before 3.14) or stopped for ever. Ending
// it unwinds its stack through C++, which aborts the process. So threads that compute end their work when Python's exit
// handlers run, and a thread that comes too late is stopped here.
#pragma once

#include <cxxabi.h>
#include <nanobind/nanobind.h>

namespace alibi::python {

namespace nb = nanobind;

/// Whether Python's exit handlers have begun, and this thread is not the one that runs them.
bool is_exiting();

/// Gives the lock to other threads while it lives.
class WithoutLock {
 public:
  WithoutLock();
  ~WithoutLock();
  WithoutLock(const WithoutLock&) = delete;
  WithoutLock& operator=(const WithoutLock&) = delete;

 private:
  PyThreadState* state_;
};

/// Takes the lock again within the life of a WithoutLock.
class WithLock {
 public:
  WithLock();
  ~WithLock();
  WithLock(const WithLock&) = delete;
  WithLock& operator=(const WithLock&) = delete;

 private:
  PyGILState_STATE state_;
};

[[noreturn]] void stop_thread();

/// Returns call(), which calls Python. Stops this thread if the interpreter ends meanwhile.
template <class Call>
auto call_python(const Call& call) {
  try {
    return call();
  } catch (abi::__forced_unwind&) {
    stop_thread();
  }
}

}  // namespace alibi::python
