// What a thread needs for a task of attention: memory, and arithmetic that flushes denormals to zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace alibi::kernels {

/// The workspace of the calling thread. It is some hundreds of KiB and kept between calls.
class Workspace {
 public:
  /// Memory for `floats`, not initialized. Parts of an earlier workspace of this thread become invalid.
  static Workspace take(size_t floats);
  /// The next part of it, aligned to 64 bytes.
  float* part(int64_t floats);

 private:
  std::shared_ptr<void> owner_;
  float* next_ = nullptr;
  size_t left_ = 0;
};

/// While one exists, its thread treats denormal numbers as zero. Otherwise each weight that underflows would cost a
/// hundred cycles.
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
