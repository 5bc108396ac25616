// A file without a name, for data that does not fit into memory. The system removes it when it is closed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>

namespace alibi::core {

class TemporaryFile {
 public:
  /// Reserves the bytes in the folder for temporary files (TMPDIR). Throws Error with the folder, the number of bytes
  /// and the reason.
  explicit TemporaryFile(int64_t bytes);
  ~TemporaryFile();
  TemporaryFile(const TemporaryFile&) = delete;
  TemporaryFile& operator=(const TemporaryFile&) = delete;

  void write(const void* data, size_t bytes, int64_t at);
  void read(void* data, size_t bytes, int64_t at) const;

 private:
  std::filesystem::path folder_;
  int descriptor_ = -1;
};

}  // namespace alibi::core
