#include "core/locks.h"

#include <sys/file.h>

#include <map>
#include <mutex>

#include "core/checksum.h"
#include "core/files.h"
#include "core/system.h"

namespace alibi::core {
namespace {

namespace fs = std::filesystem;

using FileId = std::pair<dev_t, ino_t>;

/// The folders of hold_folder(), and whether a FolderLock uses them.
struct HeldFolders {
  std::mutex mutex;
  std::map<FileId, bool> is_used;
};
HeldFolders& held() {
  static auto* const folders = new HeldFolders;  // never destroyed
  return *folders;
}

FileId id_of(int descriptor) {
  struct stat info {};
  ::fstat(descriptor, &info);
  return {info.st_dev, info.st_ino};
}

/// True if the file system has no locks.
bool try_lock(int descriptor) { return ::flock(descriptor, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK; }

[[noreturn]] void fail_in_use(const fs::path& path) {
  fail("[lock] {} is in use by another process; wait for it, or choose another folder", path.string());
}

Descriptor open_folder(const fs::path& folder) {
  Descriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  check_call(descriptor.get() >= 0, "lock", folder);
  return descriptor;
}

}  // namespace

void hold_folder(const fs::path& folder) {
  Descriptor descriptor = open_folder(folder);
  HeldFolders& folders = held();
  const std::lock_guard lock(folders.mutex);
  if (folders.is_used.contains(id_of(descriptor.get()))) return;
  if (!try_lock(descriptor.get())) fail_in_use(folder);
  folders.is_used[id_of(descriptor.get())] = false;
  descriptor.release();
}

FolderLock::FolderLock(const fs::path& folder) : folder_(folder), descriptor_(open_folder(folder)) {
  HeldFolders& folders = held();
  const std::lock_guard lock(folders.mutex);
  const auto found = folders.is_used.find(id_of(descriptor_.get()));
  if (found == folders.is_used.end() ? !try_lock(descriptor_.get()) : std::exchange(found->second, true)) {
    fail_in_use(folder);
  }
}

FolderLock::~FolderLock() {
  HeldFolders& folders = held();
  const std::lock_guard lock(folders.mutex);
  if (const auto found = folders.is_used.find(id_of(descriptor_.get())); found != folders.is_used.end()) {
    found->second = false;
  }
  const Descriptor closed = std::move(descriptor_);  // before the mutex is unlocked, so that others can lock the folder
}

bool FolderLock::is_in_place() const { return leads_to(folder_, descriptor_.get()); }

void hold_file(const fs::path& path) {
  const std::optional<fs::path> replaced = replaced_file(path);
  if (!replaced) return;
  // The folder and the name identify the file, because the file itself may not exist and is replaced at the end.
  struct stat folder {};
  check_call(::stat(replaced->has_parent_path() ? replaced->parent_path().c_str() : ".", &folder) == 0, "write", path);
  const std::string name = fmt::format("{} {} {}", folder.st_dev, folder.st_ino, replaced->filename().string());
  check(system::reserve_name("alibi-output-" + xxh64(name)),
        "[lock] {} is being written by another process; wait for it, or choose another file", path.string());
}

FileLock::FileLock(const fs::path& file, const std::string& advice) {
  for (;;) {
    Descriptor descriptor(::open(file.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK, 0666));
    check_call(descriptor.get() >= 0, "write", file);
    struct stat info {};
    check_call(::fstat(descriptor.get(), &info) == 0, "write", file);
    check(S_ISREG(info.st_mode), "[write] {}: is {}, expected a regular file", file.string(), kind_of(info.st_mode));
    check(try_lock(descriptor.get()), "[lock] {} is in use by another process; {}", file.string(), advice);
    if (!leads_to(file, descriptor.get())) continue;  // its owner removed it before it released the lock
    descriptor_ = std::move(descriptor);
    return;
  }
}

}  // namespace alibi::core
