// File descriptors.
#pragma once

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <filesystem>
#include <string>
#include <system_error>
#include <utility>

#include "core/check.h"

namespace alibi::core {

/// Throws Error with the path and the reason if `ok`, the result of a system call, is false. `ok` is evaluated before
/// errno is read here. As an argument of check() it might be evaluated later.
inline void check_call(bool ok, const char* operation, const std::filesystem::path& path) {
  if (!ok) fail("[{}] {}: {}", operation, path.string(), std::generic_category().message(errno));
}

/// A file descriptor that is closed in the destructor.
class Descriptor {
 public:
  Descriptor() = default;
  explicit Descriptor(int descriptor) : descriptor_(descriptor) {}
  Descriptor(Descriptor&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  Descriptor& operator=(Descriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~Descriptor() {
    if (descriptor_ >= 0) ::close(descriptor_);
  }
  int get() const { return descriptor_; }
  /// The descriptor, which the caller now owns.
  int release() { return std::exchange(descriptor_, -1); }

 private:
  int descriptor_ = -1;
};

/// Whether the path refers to the file of the descriptor. If the descriptor is -1: whether the path refers to nothing.
bool leads_to(const std::filesystem::path& path, int descriptor);

/// "a FIFO", for messages.
const char* kind_of(mode_t mode);

/// Opens a regular file for reading and returns its size. Throws Error for any other kind of file. It never waits for
/// the writer of a FIFO.
std::pair<Descriptor, size_t> open_regular(const std::filesystem::path& path);

}  // namespace alibi::core
