#include "nn/product_library.h"

#include <dlfcn.h>
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/check.h"
#include "core/system.h"

namespace alibi::nn {
namespace {

/// An OpenMP library.
struct OpenMp {
  void (*set_threads)(int);
  int (*max_threads)();
};

/// All OpenMP libraries that the process has loaded. The library of products is bound to one of them, but the dynamic
/// linker does not tell which one: a name looked up from here may belong to another library. Empty if it was built
/// without OpenMP.
std::vector<OpenMp> find_openmp() {
  std::vector<OpenMp> found;
  for (const std::string& name : core::system::loaded_libraries()) {
    void* library = ::dlopen(name.empty() ? nullptr : name.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) continue;  // belongs to the kernel
    const OpenMp openmp{reinterpret_cast<void (*)(int)>(::dlsym(library, "omp_set_num_threads")),
                        reinterpret_cast<int (*)()>(::dlsym(library, "omp_get_max_threads"))};
    ::dlclose(library);
    const bool known = std::any_of(found.begin(), found.end(),
                                   [&](const OpenMp& other) { return other.set_threads == openmp.set_threads; });
    if (openmp.set_threads != nullptr && openmp.max_threads != nullptr && !known) found.push_back(openmp);
  }
  check(found.size() <= OneThread::max_libraries, "[matmul] {} libraries of OpenMP in one process, at most {} expected",
        found.size(), OneThread::max_libraries);
  return found;
}

/// The library of products is bound when it is loaded, so libraries that are loaded later do not matter.
const std::vector<OpenMp>& openmp() {
  static const auto* const found = new std::vector<OpenMp>(find_openmp());
  return *found;
}

std::atomic<bool> ended{false};
std::atomic<int> users{0};
thread_local int own_uses = 0;  // uses by the calling thread: exit() during a use must not wait for itself

void end() {
  using Clock = std::chrono::steady_clock;
  constexpr std::chrono::seconds patience(10);  // much longer than a product
  ended.store(true);
  const Clock::time_point last = Clock::now() + patience;
  while (users.load() > own_uses && Clock::now() < last) std::this_thread::sleep_for(std::chrono::microseconds(50));
}

/// A child made by fork() does not have the parent's other threads, and its process has not ended.
void follow_forks() {
  ::pthread_atfork(nullptr, nullptr, [] {
    ended.store(false);
    users.store(own_uses);
  });
}

}  // namespace

OneThread::OneThread() {
  const std::vector<OpenMp>& all = openmp();
  for (size_t i = 0; i < all.size(); ++i) {
    before_[i] = all[i].max_threads();
    if (before_[i] != 1) all[i].set_threads(1);
  }
}

OneThread::~OneThread() {
  const std::vector<OpenMp>& all = openmp();
  for (size_t i = 0; i < all.size(); ++i) {
    if (before_[i] != 1) all[i].set_threads(before_[i]);
  }
}

UseOfLibrary::UseOfLibrary() {
  static std::once_flag first_use;
  std::call_once(first_use, follow_forks);
  users.fetch_add(1);  // must precede reading `ended`, because end() sets it before it reads `users`
  is_there_ = !ended.load();
  if (is_there_) {
    ++own_uses;
  } else {
    users.fetch_sub(1);
  }
}

UseOfLibrary::~UseOfLibrary() {
  if (!is_there_) return;
  --own_uses;
  users.fetch_sub(1);
}

void wait_at_the_end_for_users() { std::atexit(end); }

}  // namespace alibi::nn
