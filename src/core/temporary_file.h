// A file without a name, for data that does not fit into memory. The system removes it when it is closed.
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

}  // namespace alibi::core
