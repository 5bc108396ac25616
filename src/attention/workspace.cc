#include "attention/workspace.h"

#include "attention/problem.h"
#include "core/check.h"
#include "core/memory.h"

#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace alibi::kernels {

Workspace Workspace::take(size_t floats) {
  thread_local std::shared_ptr<void> kept;
  thread_local size_t size = 0;
  constexpr size_t slack = 4096;  // parts are rounded up to whole cache lines
  if (size < floats + slack) {
    kept.reset();
    size = 0;
    kept = core::allocate((floats + slack) * sizeof(float), true);
    size = floats + slack;
  }
  Workspace workspace;
  workspace.owner_ = kept;
  workspace.next_ = static_cast<float*>(kept.get());
  workspace.left_ = size;
  return workspace;
}

float* Workspace::part(int64_t floats) {
  const auto rounded = static_cast<size_t>(round_up(floats, 16));
  check(rounded <= left_, "[attention] the workspace has {} floats left, but {} are needed; this is a bug in alibi",
        left_, rounded);
  float* result = next_;
  next_ += rounded;
  left_ -= rounded;
  return result;
}

#if defined(__SSE2__)
FlushDenormals::FlushDenormals() : saved_(_mm_getcsr()) {
  constexpr uint32_t flush_to_zero = 0x8000, denormals_are_zero = 0x0040;
  _mm_setcsr(saved_ | flush_to_zero | denormals_are_zero);
}
FlushDenormals::~FlushDenormals() { _mm_setcsr(saved_); }
#else
FlushDenormals::FlushDenormals() = default;
FlushDenormals::~FlushDenormals() = default;
#endif

}  // namespace alibi::kernels
