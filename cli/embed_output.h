// The rows of `alibi embed` that are computed so far, in a file beside the output, so that the command can continue
// after it was interrupted.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "alibi/tensor.h"
#include "core/files.h"
#include "core/locks.h"

namespace alibi::cli {

/// The file has a header, then each row with a checksum of it and of its number. Rows are synced when they are added.
class EmbedRows {
 public:
  /// Opens or begins OUT.part, and locks it. Throws Error if another process has locked it, if another program wrote
  /// it, or if its rows have another `identity`, which is of 16 characters.
  EmbedRows(const std::filesystem::path& out, const std::string& identity, int64_t width);
  /// Removes a file without rows.
  ~EmbedRows();

  static std::filesystem::path path_of(const std::filesystem::path& out) { return out.string() + ".part"; }

  /// The number of intact rows, before the first damaged one.
  int64_t rows() const { return rows_; }
  /// The number of rows that were found in the file and left out because of damage.
  int64_t damaged() const { return damaged_; }
  /// Keeps the first rows only.
  void truncate(int64_t rows);
  void append(const Tensor& rows);
  /// All rows, mapped: float32 [rows, width] with a gap after each row.
  Tensor all();
  /// Removes the file.
  void remove();

 private:
  int64_t row_bytes() const;
  void open(const std::string& header);

  std::filesystem::path path_;
  int64_t width_, rows_ = 0, damaged_ = 0;
  core::FileLock lock_;
  std::unique_ptr<core::AppendFile> file_;  ///< null if the file is not of this command
};

}  // namespace alibi::cli
