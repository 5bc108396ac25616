// Resources of a thread for a task of attention: memory, and arithmetic that flushes denormals to zero.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace alibi::kernels {

/// The workspace of the calling thread. It has some hundreds of KiB and is kept between calls.
class Workspace {
 public:
  /// Provides memory for `floats` floats, not initialized. Parts of an earlier workspace of this thread become invalid.
  static Workspace take(size_t floats);
  /// The next part of the memory, aligned to 64 bytes.
  float* part(int64_t floats);

 private:
  std::shared_ptr<void> owner_;
  float* next_ = nullptr;
  size_t left_ = 0;
};

/// During its lifetime, its thread treats denormal numbers as zero. Otherwise each weight that underflows would cost a
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
