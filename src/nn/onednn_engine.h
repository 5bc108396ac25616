// oneDNN as this library uses it: limited by ALIBI_ISA, one thread at a time, and never after the end of the process.
#pragma once

#include <array>
#include <oneapi/dnnl/dnnl.hpp>

#include "alibi/tensor.h"

namespace alibi::nn {

/// The one engine of the process, never destroyed: other threads may compute while the process ends. Throws Error if
/// ALIBI_ISA is set and something else has used oneDNN before, which then cannot be limited any more.
dnnl::engine& engine();

/// Whether oneDNN multiplies matrices of this type on this CPU (bfloat16: not before AVX-512).
bool has_onednn_products(DType dtype);

/// oneDNN built with OpenMP cuts a product by the number of threads, which would change the bits. While this lives,
/// oneDNN works for the calling thread in that thread alone, whichever OpenMP library oneDNN is bound to.
class OneThread {
 public:
  OneThread();
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

  static constexpr size_t most_libraries = 16;

 private:
  std::array<int, most_libraries> before_{};
};

/// oneDNN frees the code that it has generated when main() has returned or exit() was called, even if another thread
/// runs that code. While one of these lives and says that oneDNN is there, the end of the process waits.
class UseOfOneDnn {
 public:
  UseOfOneDnn();
  ~UseOfOneDnn();
  UseOfOneDnn(const UseOfOneDnn&) = delete;
  UseOfOneDnn& operator=(const UseOfOneDnn&) = delete;

  /// False once the process ends: oneDNN must not be used any more.
  bool is_there() const { return is_there_; }

 private:
  bool is_there_;
};

/// To be called when oneDNN has generated code of a new kind. atexit handlers run last-in, first-out, so the handler
/// that waits for the users of that code must be registered after oneDNN's own.
void wait_at_the_end_for_users();

}  // namespace alibi::nn
