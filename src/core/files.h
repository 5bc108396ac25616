// Files, read whole or mapped, written atomically or piece by piece; and folders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace alibi::core {

/// Whether something is there, and whether it is a folder; links are followed. Throw Error with the path and the reason
/// if this cannot be determined: links in a circle, or a folder without permission.
bool path_exists(const std::filesystem::path& path);
bool is_folder(const std::filesystem::path& path);

/// Reads a regular file. Throws Error with the path and the reason, also if it has more than `most` bytes, if its size
/// changes during the read, or if it is not a regular file: a FIFO would block, and a device might never end.
std::string read_file(const std::filesystem::path& path, size_t most = SIZE_MAX);

/// Writes a file in the way that its kind needs. Links are followed, also to a target that does not exist yet. A
/// regular or new file is written to a temporary file beside it, synced and renamed, with the old permissions, so a
/// crash leaves either the old or the new file. Devices, FIFOs, sockets and open files (/dev/stdout, /dev/fd/3) are
/// written in place. `write` is called once with an append function. Throws Error with the path and the reason.
void write_file(const std::filesystem::path& path, std::string_view content);
void write_file(const std::filesystem::path& path,
                const std::function<void(const std::function<void(std::string_view)>& append)>& write);

/// The same with a header that is known only at the end: `header_size` bytes are reserved, and the result of `write`,
/// of that size, is written there. Throws Error for files that are written in place, because they cannot be rewound.
void write_file_with_header(
    const std::filesystem::path& path, size_t header_size,
    const std::function<std::string(const std::function<void(std::string_view)>& append)>& write);

/// Throws Error if write_file() could not write there, as far as this can be determined without opening the file.
/// Creates the parent folders.
void check_output_file(const std::filesystem::path& path);

/// The number of the open file that a path or a link names: 1 for /dev/stdout and /dev/fd/1.
std::optional<int> descriptor_of(const std::filesystem::path& path);

/// Creates a folder and its parents; for a link, its target. Throws Error if the folder cannot be created or written
/// to.
void make_folder(const std::filesystem::path& path);

/// A file to append to; each piece is written at once. Throws Error with the path and the reason.
class AppendFile {
 public:
  /// Existing content stays.
  explicit AppendFile(const std::filesystem::path& path);
  ~AppendFile();
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;

  void append(std::string_view content);
  void sync();
  /// Whether the path still leads to this file; it may have been removed or moved.
  bool is_in_place() const;
  /// Reads the whole file, also if it was removed.
  std::string content() const;

 private:
  std::filesystem::path path_;
  int descriptor_;
};

/// Renames a file or folder to an unused name, and syncs its parent folder.
void rename_synced(const std::filesystem::path& from, const std::filesystem::path& to);

/// Whether this is the name of a temporary file that an interrupted write_file() left.
bool is_left_by_write_file(const std::filesystem::path& name);

/// Locks a folder for this process, until the process ends. Throws Error if another process has the lock. On file
/// systems without locks it has no effect.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  FolderLock(const FolderLock&) = delete;
  FolderLock& operator=(const FolderLock&) = delete;
  /// Whether the path still leads to this folder; it may have been removed or moved.
  bool is_in_place() const;

 private:
  std::filesystem::path folder_;
  int descriptor_;
};

/// A read-only memory map of a regular file. If the file becomes smaller while it is mapped, the missing part reads as
/// zeros: the first map installs a handler of SIGBUS, which passes other faults to the previous handler. Call
/// check_mapped() before you rely on data from the map.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }

 private:
  struct MappedRange* range_ = nullptr;  // the entry for the handler
  void* data_ = nullptr;
  size_t size_ = 0;
};

/// The first byte of the MappedFile that `data` is in; null: it is in none.
const void* mapping_of(const void* data);

/// Throws Error if `data` is in a MappedFile whose file has become smaller. Any other address is accepted. May be
/// called from any thread while the map exists; costs a system call.
void check_mapped(const void* data);

}  // namespace alibi::core
