// Reading, mapping, appending to and atomically writing files; and folders.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/descriptor.h"

namespace alibi::core {

/// Whether the path exists, and whether it is a folder. Links are followed. Both throw Error with the path and the
/// reason if this cannot be determined because of circular links or missing permissions.
bool path_exists(const std::filesystem::path& path);
bool is_folder(const std::filesystem::path& path);

/// Reads a regular file. Throws Error with the path and the reason if reading fails, if the file has more than `most`
/// bytes, if its size changes during the read, or if it is not a regular file (a FIFO would block, and a device might
/// never end).
std::string read_file(const std::filesystem::path& path, size_t most = SIZE_MAX);

/// Writes a file. Links are followed, even to a target that does not exist yet. A regular or new file is written to a
/// temporary file in the same folder, synced and renamed, and keeps its permissions, so after a crash either the old or
/// the new file is there. Devices, FIFOs, sockets and open files (/dev/stdout, /dev/fd/3) are written in place. `write`
/// is called once with an append function. Throws Error with the path and the reason.
void write_file(const std::filesystem::path& path, std::string_view content);
void write_file(const std::filesystem::path& path,
                const std::function<void(const std::function<void(std::string_view)>& append)>& write);

/// Like write_file(), for a file whose header is known only at the end. `header_size` bytes are reserved at its
/// beginning. `write` returns the header, which must have this size. Throws Error for files that are written in place,
/// because they cannot be rewound.
void write_file_with_header(
    const std::filesystem::path& path, size_t header_size,
    const std::function<std::string(const std::function<void(std::string_view)>& append)>& write);

/// Throws Error if write_file() could not write to this path, as far as this can be determined without opening the
/// file. Creates the parent folders.
void check_output_file(const std::filesystem::path& path);

/// The descriptor of the open file that a path or a link names: 1 for /dev/stdout and /dev/fd/1.
std::optional<int> descriptor_of(const std::filesystem::path& path);

/// Creates a folder and its parents. For a link, creates its target. Throws Error if the folder cannot be created or is
/// not writable.
void make_folder(const std::filesystem::path& path);

/// A file to append to. Each piece is written immediately. Throws Error with the path and the reason.
class AppendFile {
 public:
  /// Keeps existing content.
  explicit AppendFile(const std::filesystem::path& path);

  void append(std::string_view content);
  void sync();
  /// Whether the path still refers to this file. It may have been removed or moved.
  bool is_in_place() const;
  /// Reads the whole file, even if it was removed from its folder.
  std::string content() const;

 private:
  std::filesystem::path path_;
  Descriptor descriptor_;
};

/// Renames a file or folder to an unused name and syncs the parent folder.
void rename_synced(const std::filesystem::path& from, const std::filesystem::path& to);

/// Whether this is the name of a temporary file of an interrupted write_file().
bool is_left_by_write_file(const std::filesystem::path& name);

/// Locks a folder until the object is destroyed or the process ends. Throws Error if another process holds the lock. It
/// has no effect on file systems without locks.
class FolderLock {
 public:
  explicit FolderLock(const std::filesystem::path& folder);
  ~FolderLock();
  /// Whether the path still refers to this folder. It may have been removed or moved.
  bool is_in_place() const;

 private:
  std::filesystem::path folder_;
  Descriptor descriptor_;
};

/// A read-only memory map of a regular file. The file must not be truncated while it is mapped: reading the missing
/// part ends the process with SIGBUS.
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

/// Whether `data` is in a MappedFile, so that it must not be written.
bool is_mapped(const void* data);

}  // namespace alibi::core
