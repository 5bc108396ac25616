// Files: read whole or mapped, written as a whole or piece by piece; folders.
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
/// where that cannot be known: links that go round, a folder that must not be entered.
bool path_exists(const std::filesystem::path& path);
bool is_folder(const std::filesystem::path& path);

/// The whole of a regular file. Throws Error with the path and the reason, also if it has more than `most` bytes, if
/// its size changes while it is read, and for what is no regular file: a FIFO would wait, a device might never end.
std::string read_file(const std::filesystem::path& path, size_t most = SIZE_MAX);

/// Where a path leads decides how it is written. Links are followed, also to what is not there yet. A regular file, or
/// nothing so far: written beside, synced and renamed over it, with the permissions it has, so that after a crash there
/// is the old file or the new one, nothing between. Devices, FIFOs, sockets and open files (/dev/stdout, /dev/fd/3):
/// written as they are. `write` is called once with an append function. Throws Error with the path and the reason.
void write_file(const std::filesystem::path& path, std::string_view content);
void write_file(const std::filesystem::path& path,
                const std::function<void(const std::function<void(std::string_view)>& append)>& write);

/// The same with a header that is known only at the end: `header_size` bytes are left free, and what `write` returns,
/// of that size, is put there. Throws Error for what is written as it is: there is no way back to its beginning.
void write_file_with_header(
    const std::filesystem::path& path, size_t header_size,
    const std::function<std::string(const std::function<void(std::string_view)>& append)>& write);

/// Throws Error if write_file() could not write there, as far as that can be told without opening anything. Makes the
/// folders above it.
void check_output_file(const std::filesystem::path& path);

/// The number of the open file that a path, or the link that it is, stands for: 1 for /dev/stdout and /dev/fd/1.
std::optional<int> descriptor_of(const std::filesystem::path& path);

/// Makes a folder and its parents; a link to what is not there yet gets its target. Throws Error if it cannot be made
/// or written to.
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
  /// Whether the path still leads to this file: somebody may have removed or moved it.
  bool is_in_place() const;
  /// All of it, also if it was removed.
  std::string content() const;

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
  /// Whether the path still leads to this folder: somebody may have removed or moved it.
  bool is_in_place() const;

 private:
  std::filesystem::path folder_;
  int descriptor_;
};

/// A read-only memory map of a regular file. If the file becomes smaller while it is mapped, what is missing reads as
/// zeros (a handler of SIGBUS, which the first map installs, sees to that; what is not ours goes to the handler that
/// was there before). So whoever has read from it calls check_mapped() before what was read is relied on.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }

 private:
  struct MappedRange* range_ = nullptr;  // what the handler knows of it
  void* data_ = nullptr;
  size_t size_ = 0;
};

/// Throws Error if `data` lies in a MappedFile whose file has become smaller: what was read there is not what it held.
/// Any other address is fine. May be called from any thread while the map lives; costs a system call.
void check_mapped(const void* data);

}  // namespace alibi::core
