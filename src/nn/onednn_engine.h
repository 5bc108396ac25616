// oneDNN as this library uses it: limited by ALIBI_ISA, and on one thread at a time.
#pragma once

#include <array>
#include <oneapi/dnnl/dnnl.hpp>

#include "alibi/tensor.h"

namespace alibi::nn {

/// The one engine of the process, never destroyed: other threads may compute while the process ends. Throws Error if
/// ALIBI_ISA is set and something else has used oneDNN before, which then cannot be limited any more.
dnnl::engine& engine();

/// Whether oneDNN multiplies matrices of this type on this CPU (bfloat16: not before AVX-512).
bool has_products(DType dtype);

/// oneDNN built with OpenMP cuts a product by the number of threads, which would show in the bits. While this lives,
/// what the calling thread asks of oneDNN is done by that thread alone, whichever OpenMP it is that oneDNN has found
/// among those that the process has loaded.
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

}  // namespace alibi::nn
