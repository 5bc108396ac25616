// The rows of `alibi embed` that are computed so far, in a file beside the output, so that the command can continue
// after it was interrupted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "alibi/tensor.h"
#include "core/files.h"

namespace alibi::cli {

class EmbedRows {
 public:
  /// Opens or begins OUT.part. Rows of another `identity`, which is of 16 characters, are discarded.
  EmbedRows(const std::filesystem::path& out, const std::string& identity, int64_t width);

  int64_t rows() const { return rows_; }
  /// Keeps the first rows only.
  void truncate(int64_t rows);
  void append(const Tensor& rows);
  /// All rows, mapped: float32 [rows, width].
  Tensor all();
  /// Removes the file.
  void remove();

 private:
  std::filesystem::path path_;
  int64_t width_, rows_ = 0;
  std::unique_ptr<core::AppendFile> file_;
};

}  // namespace alibi::cli
