// How this library uses oneDNN: limited by ALIBI_ISA, on one thread at a time, and never after the end of the process.
#pragma once

#include <array>
#include <oneapi/dnnl/dnnl.hpp>

#include "alibi/tensor.h"

namespace alibi::nn {

/// The only engine of the process. It is never destroyed, because other threads may compute while the process ends.
/// Throws Error if ALIBI_ISA is set and other code has used oneDNN before, because oneDNN cannot be limited after its
/// first use.
dnnl::engine& engine();

/// Whether oneDNN multiplies matrices of this type on this CPU. bfloat16 needs at least AVX-512.
bool has_onednn_products(DType dtype);

/// oneDNN built with OpenMP divides a product by the number of threads, which would change the bits. During the
/// lifetime of this object, oneDNN uses only the calling thread, whichever OpenMP library it is bound to.
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

/// oneDNN frees its generated code after main() has returned or exit() was called, even if another thread runs that
/// code. While an object of this class exists and is_there() is true, the end of the process waits.
class UseOfOneDnn {
 public:
  UseOfOneDnn();
  ~UseOfOneDnn();
  UseOfOneDnn(const UseOfOneDnn&) = delete;
  UseOfOneDnn& operator=(const UseOfOneDnn&) = delete;

  /// False after the end of the process has begun; oneDNN must then not be used.
  bool is_there() const { return is_there_; }

 private:
  bool is_there_;
};

/// Call this after oneDNN has generated code of a new kind. atexit handlers run last-in, first-out, so the handler that
/// waits for the users of that code must be registered after oneDNN's own.
void wait_at_the_end_for_users();

}  // namespace alibi::nn
