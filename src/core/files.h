// Files: whole, beside-and-renamed, or mapped.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace alibi {

/// The whole file. Throws Error with the path and the reason, also if it has more than `most` bytes.
std::string read_file(const std::filesystem::path& path, size_t most = SIZE_MAX);

/// Writes beside the target, syncs, renames over it: after a crash there is the old file or the new one, nothing
/// between. `write` is called once with an append function.
void write_file(const std::filesystem::path& path, std::string_view content);
void write_file(const std::filesystem::path& path,
                const std::function<void(const std::function<void(std::string_view)>& append)>& write);

/// The same with a header that is known only at the end: `header_size` bytes are left free, and what `write` returns,
/// of that size, is put there.
void write_file_with_header(
    const std::filesystem::path& path, size_t header_size,
    const std::function<std::string(const std::function<void(std::string_view)>& append)>& write);

/// Makes a folder and its parents. Throws Error if it cannot be made or written to.
void make_folder(const std::filesystem::path& path);

/// A file that grows, each piece written when it is given. Throws Error with the path and the reason.
class AppendFile {
 public:
  /// What the file holds already stays.
  explicit AppendFile(const std::filesystem::path& path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  void append(std::string_view content);
  void sync();

 private:
  std::filesystem::path path_;
  int descriptor_;
};

/// Renames a file or folder to a name that is free, and syncs the folder that holds it.
void rename_synced(const std::filesystem::path& from, const std::filesystem::path& to);

/// Whether write_file() was stopped before it was done with a file of this name.
bool is_left_by_write_file(const std::filesystem::path& name);

/// Holds a folder for one process, until that ends in whatever way. Throws Error if another one has it. File systems
/// that cannot lock let everybody through.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;

 private:
  int descriptor_;
};

/// A read-only memory map of a file.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace alibi
