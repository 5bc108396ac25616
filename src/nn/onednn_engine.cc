#include "nn/onednn_engine.h"

#include <dlfcn.h>
#include <link.h>
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
#include "core/isa.h"

namespace alibi::nn {
namespace {

dnnl::cpu_isa limit_of(Isa isa) {
  switch (isa) {
    case Isa::scalar:
      return dnnl::cpu_isa::sse41;  // the lowest instruction set that oneDNN has
    case Isa::avx2:
      return dnnl::cpu_isa::avx2;
    case Isa::avx512:
      return dnnl::cpu_isa::avx512_core;
    case Isa::avx512_bf16:
      return dnnl::cpu_isa::avx512_core_bf16;
    case Isa::amx:
      return dnnl::cpu_isa::avx512_core_amx;
  }
  fail("[isa] unknown instruction set");
}

dnnl::engine* make_engine() {
  if (const std::optional<Isa> limit = core::isa_limit()) {
    check(dnnl::set_max_cpu_isa(limit_of(*limit)) == dnnl::status::success,
          "[isa] ALIBI_ISA={}, but something else in this process has used oneDNN before, and it is limited by its "
          "first use only; set ONEDNN_MAX_CPU_ISA as well",
          name_of(*limit));
  }
  return new dnnl::engine(dnnl::engine::kind::cpu, 0);
}

/// Creates a product of bfloat16 matrices, which throws if it is not supported.
bool can_multiply_bfloat16() {
  try {
    using Memory = dnnl::memory;
    const Memory::desc a({16, 16}, Memory::data_type::bf16, Memory::format_tag::ab);
    const Memory::desc c({16, 16}, Memory::data_type::f32, Memory::format_tag::ab);
#if DNNL_VERSION_MAJOR >= 3
    const dnnl::matmul::primitive_desc made(engine(), a, a, c);
#else
    const dnnl::matmul::primitive_desc made(dnnl::matmul::desc(a, a, c), engine());
#endif
    return true;
  } catch (const dnnl::error&) {
    return false;
  }
}

/// An OpenMP library.
struct OpenMp {
  void (*set_threads)(int);
  int (*max_threads)();
};

/// All OpenMP libraries that the process has loaded. oneDNN is bound to one of them, but the dynamic linker does not
/// tell which one: a name looked up from here may belong to another library. Empty if oneDNN was built without OpenMP.
std::vector<OpenMp> find_openmp() {
  std::vector<std::string> libraries;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* names) {
        static_cast<std::vector<std::string>*>(names)->emplace_back(info->dlpi_name);
        return 0;
      },
      &libraries);
  std::vector<OpenMp> found;
  for (const std::string& name : libraries) {
    void* library = ::dlopen(name.empty() ? nullptr : name.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (library == nullptr) continue;  // belongs to the kernel
    const OpenMp openmp{reinterpret_cast<void (*)(int)>(::dlsym(library, "omp_set_num_threads")),
                        reinterpret_cast<int (*)()>(::dlsym(library, "omp_get_max_threads"))};
    ::dlclose(library);
    const bool known = std::any_of(found.begin(), found.end(),
                                   [&](const OpenMp& other) { return other.set_threads == openmp.set_threads; });
    if (openmp.set_threads != nullptr && openmp.max_threads != nullptr && !known) found.push_back(openmp);
  }
  check(found.size() <= OneThread::most_libraries,
        "[matmul] {} libraries of OpenMP in one process, at most {} expected", found.size(), OneThread::most_libraries);
  return found;
}

/// oneDNN is bound when it is loaded, so libraries that are loaded later do not matter.
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

dnnl::engine& engine() {
  static dnnl::engine& instance = *make_engine();
  return instance;
}

bool has_onednn_products(DType dtype) {
  if (dtype != DType::bfloat16) return true;
  const UseOfOneDnn onednn;
  if (!onednn.is_there()) return true;  // the product itself then detects that the process has ended
  // Newer versions of oneDNN have a slow product for any CPU, which computes one element after the other.
  static const bool bfloat16 = best_isa() >= Isa::avx512 && can_multiply_bfloat16();
  return bfloat16;
}

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

UseOfOneDnn::UseOfOneDnn() {
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

UseOfOneDnn::~UseOfOneDnn() {
  if (!is_there_) return;
  --own_uses;
  users.fetch_sub(1);
}

void wait_at_the_end_for_users() { std::atexit(end); }

}  // namespace alibi::nn
