#include "lock.h"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <thread>

#include "bindings.h"

namespace alibi::python {
namespace {

std::atomic<bool> exiting{false};
std::thread::id exiting_thread;  // written before `exiting`
/// Threads that compute without the lock.
std::atomic<int> computing{0};

/// Is not in the stable ABI before Python 3.13, and has another name there.
bool interpreter_is_finalizing() {
  static const auto ask = [] {
    void* found = ::dlsym(RTLD_DEFAULT, "Py_IsFinalizing");
    if (found == nullptr) found = ::dlsym(RTLD_DEFAULT, "_Py_IsFinalizing");
    return reinterpret_cast<int (*)()>(found);
  }();
  return ask != nullptr && ask() != 0;
}

/// Another thread may begin to finalize after this one has asked.
template <class Take>
auto take_lock(const Take& take) {
  if (is_exiting() && interpreter_is_finalizing()) stop_thread();
  return call_python(take);
}

/// Python's exit handlers call this. Computations of other threads end at their next check for interrupts.
void end_computations() {
  constexpr std::chrono::seconds most{5};
  exiting_thread = std::this_thread::get_id();
  exiting = true;
  // What the frames of daemon threads hold is never released, and that is no leak of this module.
  const nb::object count = nb::module_::import_("threading").attr("active_count")();
  if (nb::cast<int>(count) > 1) nb::set_leak_warnings(false);
  const WithoutLock others_end;
  const auto end = std::chrono::steady_clock::now() + most;
  while (computing > 1 && std::chrono::steady_clock::now() < end) {  // one is this thread
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

}  // namespace

bool is_exiting() { return exiting && std::this_thread::get_id() != exiting_thread; }

void stop_thread() {
  while (true) ::pause();
}

WithoutLock::WithoutLock() : state_(PyEval_SaveThread()) { ++computing; }
WithoutLock::~WithoutLock() {
  --computing;
  take_lock([this] { PyEval_RestoreThread(state_); });
}

WithLock::WithLock() {
  --computing;
  state_ = take_lock([] { return PyGILState_Ensure(); });
}
WithLock::~WithLock() {
  PyGILState_Release(state_);
  ++computing;
}

void bind_lock(nb::module_& m) {
  m.def("end_computations", end_computations);
  ::pthread_atfork(nullptr, nullptr, [] { computing = 0; });  // the child has this thread alone, which has the lock
}

}  // namespace alibi::python
