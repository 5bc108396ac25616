// A file without a name, for data that does not fit into memory, which the system removes when it is closed; and a
// folder that is removed at the end.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>

#include "core/descriptor.h"

namespace alibi::core {

class TemporaryFile {
 public:
  /// Reserves the bytes in the folder for temporary files (TMPDIR). Throws Error with the folder, the number of bytes
  /// and the reason.
  explicit TemporaryFile(int64_t bytes);

  void write(const void* data, size_t bytes, int64_t at);
  void read(void* data, size_t bytes, int64_t at) const;

 private:
  std::filesystem::path folder_;
  Descriptor descriptor_;
};

/// A folder that is removed at the end, with all that is in it.
class TemporaryFolder {
 public:
  /// Makes the folder if it does not exist. Throws Error.
  explicit TemporaryFolder(std::filesystem::path folder);
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;

  std::filesystem::path path;
};

}  // namespace alibi::core
