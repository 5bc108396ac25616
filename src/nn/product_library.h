// How a provider of products (products.h) uses its library: on one thread at a time, and never after the end of the
// process.
#pragma once

#include <array>
#include <cstddef>

namespace alibi::nn {

/// A library built with OpenMP divides a product by the number of threads, which would change the bits. During the
/// lifetime of this object, it uses only the calling thread, whichever OpenMP library it is bound to.
class OneThread {
 public:
  OneThread();
  ~OneThread();
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

  static constexpr size_t max_libraries = 16;

 private:
  std::array<int, max_libraries> before_{};
};

/// The libraries free their code or buffers after main() has returned or exit() was called, even if another thread uses
/// them. While an object of this class exists and is_there() is true, the end of the process waits.
class UseOfLibrary {
 public:
  UseOfLibrary();
  ~UseOfLibrary();
  UseOfLibrary(const UseOfLibrary&) = delete;
  UseOfLibrary& operator=(const UseOfLibrary&) = delete;

  /// False after the end of the process has begun; the library must then not be used.
  bool is_there() const { return is_there_; }

 private:
  bool is_there_;
};

/// Call this after the first use, and after oneDNN has generated code of a new kind. atexit handlers run last-in,
/// first-out, so the handler that waits for the users of that code must be registered after oneDNN's own.
void wait_at_the_end_for_users();

}  // namespace alibi::nn
