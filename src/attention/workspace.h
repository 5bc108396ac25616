// What a thread has while it computes a task of attention: memory, and arithmetic without denormals.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace alibi::kernels {

/// The calling thread's workspace, kept from call to call (it is some hundreds of KiB).
class Workspace {
 public:
  /// Room for `floats`, undefined; what was taken before is void.
  static Workspace take(size_t floats);
  /// The next part of it, aligned to 64 bytes.
  float* part(int64_t floats);

 private:
  std::shared_ptr<void> owner_;
  float* next_ = nullptr;
  size_t left_ = 0;
};

/// While it lives, this thread treats denormal numbers as zero: weights that underflow would otherwise cost a hundred
/// cycles each.
class FlushDenormals {
 public:
  FlushDenormals();
  ~FlushDenormals();
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;

 private:
  uint32_t saved_ = 0;
};

}  // namespace alibi::kernels
