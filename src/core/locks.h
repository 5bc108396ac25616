// Locks that keep other processes from writing to the same place. Locks end with the process that holds them.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "core/descriptor.h"

namespace alibi::core {

/// Locks a folder for the rest of the process. Each FolderLock of this process then uses this lock, one at a time.
/// Throws Error if another process holds the lock.
void hold_folder(const std::filesystem::path& folder);

/// Reserves a file that is to be written for the rest of the process. The file need not exist, and nothing is created
/// beside it. Files that are written in place, such as devices, are not reserved. Throws Error if another process of
/// this machine has reserved the file. It has no effect on systems other than Linux.
void hold_file(const std::filesystem::path& path);

/// The file that write_file() would create or replace, after links; nothing if it would write in place.
std::optional<std::filesystem::path> replaced_file(const std::filesystem::path& path);

/// Removes the temporary files that killed processes left in write_file() of the file `name`, or of any file if `name`
/// is empty. Files of processes that are still writing are locked, and stay. write_file() calls it.
void remove_left_files(const std::filesystem::path& folder, const std::string& name = {});

/// Opens or creates a file and locks it until the object is destroyed. Throws Error with `advice` if another process
/// holds the lock.
class FileLock {
 public:
  FileLock(const std::filesystem::path& file, const std::string& advice);

 private:
  Descriptor descriptor_;
};

}  // namespace alibi::core
