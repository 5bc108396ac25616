// Matrix products by OpenBLAS.
#include <cblas.h>
#include <pthread.h>

#include <algorithm>
#include <climits>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <mutex>
#include <new>
#include <semaphore>
#include <shared_mutex>
#include <string>

#include "core/check.h"
#include "core/memory.h"
#include "nn/elementwise.h"
#include "nn/product_library.h"
#include "nn/products.h"

namespace alibi::nn {
namespace {

/// Maximum number of calls at a time. A library without threads does not lock its buffers, so two calls would use the
/// same one. Others have buffers for 50 calls and twice as many as their threads, and print a warning when they need
/// more.
int max_calls() {
  if (openblas_get_parallel() == OPENBLAS_SEQUENTIAL) return 1;
  constexpr int least = 50;
  const std::string config = openblas_get_config(), key = "MAX_THREADS=";
  const size_t at = config.find(key);
  return at == std::string::npos ? least : std::max(least, 2 * std::atoi(config.c_str() + at + key.size()));
}

/// What calls of OpenBLAS share. Never destroyed, because other threads may compute while the process ends.
struct Calls {
  std::mutex mutex;
  int64_t now = 0, most = 0;  // calls that have begun and not ended, and the largest number of them so far
  int host_threads = 1;       // the setting of the process before the calls
  std::counting_semaphore<> places{max_calls()};
  std::shared_mutex forks;  // held by calls that run, and exclusively while the process is forked
};

/// A child made by fork() must not find locks of OpenBLAS held by threads that it does not have. It has no calls.
Calls& calls() {
  static Calls* const instance = [] {
    static auto* const made = new Calls;
    ::pthread_atfork(
        [] {
          made->forks.lock();
          made->mutex.lock();
        },
        [] {
          made->mutex.unlock();
          made->forks.unlock();
        },
        [] {
          const int64_t most = made->most;
          (new (made) Calls)->most = most;
        });
    return made;
  }();
  return *instance;
}

/// A call of OpenBLAS, on the calling thread alone. OneThread limits OpenMP's threads. The number of OpenBLAS's own
/// threads is a setting of the process, so it is 1 while any call runs.
class Call {
 public:
  Call() {
    {
      const std::lock_guard lock(calls_.mutex);
      // OpenBLAS ends the process if it has no memory for the buffer of a call, which it keeps for later calls.
      constexpr size_t buffer_bytes = size_t{136} << 20;
      if (calls_.now == calls_.most) {
        core::require_memory("matmul", buffer_bytes);
        ++calls_.most;
      }
      if (calls_.now++ == 0 && has_own_threads()) {
        calls_.host_threads = openblas_get_num_threads();
        if (calls_.host_threads != 1) openblas_set_num_threads(1);
      }
    }
    calls_.places.acquire();
    calls_.forks.lock_shared();
  }
  ~Call() {
    calls_.forks.unlock_shared();
    calls_.places.release();
    const std::lock_guard lock(calls_.mutex);
    if (--calls_.now == 0 && has_own_threads() && calls_.host_threads != 1) {
      openblas_set_num_threads(calls_.host_threads);
    }
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  static bool has_own_threads() { return openblas_get_parallel() == OPENBLAS_THREAD; }

  Calls& calls_ = calls();
  OneThread one_thread_;
};

/// The configuration begins with "OpenBLAS 0.3.21 ".
std::string describe() {
  const std::string config = openblas_get_config();
  return config.substr(0, config.find(' ', config.find(' ') + 1)) + ", " + openblas_get_corename();
}

bool has_products(DType dtype) { return dtype == DType::float32; }

/// OpenBLAS copies blocks of both operands into its own layout.
bool prefers_inner_first(DType) { return false; }

blasint narrow(int64_t number) {
  check(number <= INT_MAX, "[matmul] a matrix has {} rows, columns or elements between rows, expected at most {}",
        number, INT_MAX);
  return static_cast<blasint>(number);
}

/// c = bias, or c += bias.
void start_with_bias(const Product& p) {
  for (int64_t row = 0; row < p.m; ++row) {
    auto* const to = static_cast<float*>(p.c.at(row, 0).data);
    if (!p.accumulate) {
      convert_row(p.bias, p.bias_dtype, p.n, to, DType::float32);
    } else if (p.bias_dtype == DType::float32) {
      for (int64_t i = 0; i < p.n; ++i) to[i] += static_cast<const float*>(p.bias)[i];
    } else {
      for (int64_t i = 0; i < p.n; ++i) to[i] += static_cast<float>(static_cast<const bfloat16*>(p.bias)[i]);
    }
  }
}

bool run_sgemm(const Product& p) {
  const UseOfLibrary openblas;
  if (!openblas.is_there()) return false;
  // OpenBLAS frees its buffers when it is unloaded, after all exit handlers.
  static std::once_flag first_use;
  std::call_once(first_use, wait_at_the_end_for_users);
  const Call call;
  if (p.bias != nullptr) start_with_bias(p);
  const auto order = [](const Matrix& matrix) { return matrix.transposed ? CblasTrans : CblasNoTrans; };
  cblas_sgemm(CblasRowMajor, order(p.a), order(p.b), narrow(p.m), narrow(p.n), narrow(p.k), 1,
              static_cast<const float*>(p.a.data), narrow(p.a.stride), static_cast<const float*>(p.b.data),
              narrow(p.b.stride), p.accumulate || p.bias != nullptr ? 1 : 0, static_cast<float*>(p.c.data),
              narrow(p.c.stride));
  return true;
}

/// Plans do not transpose, because no layout is slow.
bool transpose(const float*, int64_t, int64_t, int64_t, float*) { return false; }

}  // namespace

const ProductProvider& product_provider() {
  static constexpr ProductProvider openblas{.name = "OpenBLAS",
                                            .description = describe,
                                            .has_products = has_products,
                                            .prefers_inner_first = prefers_inner_first,
                                            .multiply = run_sgemm,
                                            .transpose = transpose,
                                            .product_in_own_layout = nullptr};
  return openblas;
}

}  // namespace alibi::nn
