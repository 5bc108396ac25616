// Open files as the system knows them, for the code of this folder that opens some.
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

/// Throws Error with the path and the reason. `ok` is what a system call said: it has been evaluated when errno is read
/// here; among the arguments of check() it need not have been.
inline void check_call(bool ok, const char* operation, const std::filesystem::path& path) {
  if (!ok) fail("[{}] {}: {}", operation, path.string(), std::generic_category().message(errno));
}

/// A file descriptor that closes itself.
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

 private:
  int descriptor_ = -1;
};

/// Whether the path leads to what the descriptor was opened for, or to nothing if that is -1.
bool leads_to(const std::filesystem::path& path, int descriptor);

/// "a FIFO", for messages.
const char* kind_of(mode_t mode);

/// A regular file, opened to be read, and its size. Throws Error for anything else, without waiting for a writer.
std::pair<Descriptor, size_t> open_regular(const std::filesystem::path& path);

}  // namespace alibi::core
