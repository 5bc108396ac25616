#include "core/atomic_update.h"

#include <string_view>
#include <system_error>
#include <vector>

#include "core/files.h"
#include "core/system.h"
#include "core/temporary_file.h"

namespace alibi::core {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSaved = ".saved";
constexpr std::string_view kPartPrefix = ".saving.";

/// The temporary folder of one write.
fs::path part_of(const fs::path& folder) { return folder / fmt::format("{}{}.part", kPartPrefix, ::getpid()); }

std::vector<fs::path> entries_of(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> entries;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    entries.push_back(entry->path());
  }
  check(!error, "[write] {}: {}", folder.string(), error.message());
  return entries;
}

/// A hard link, or a copy if the file system has none.
void give_name(const fs::path& file, const fs::path& name) {
  std::error_code error;
  fs::create_hard_link(file, name, error);
  if (!error) return;
  const MappedFile content(file);
  const std::span<const std::byte> bytes = content.bytes();
  write_file(name, {reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

/// Moves the files of .saved, which are the newest, to their places. If the process is killed, this can be repeated
/// from the beginning, because .saved stays complete until it is removed.
void put_in_place(const fs::path& folder, const std::set<std::string>& owned) {
  const fs::path saved = folder / kSaved;
  const TemporaryFolder part(part_of(folder));
  std::error_code error;
  for (const fs::path& file : entries_of(saved)) {
    const fs::path name = file.filename();
    give_name(file, part.path / name);
    fs::rename(part.path / name, folder / name, error);
    check(!error, "[write] {}: {}", (folder / name).string(), error.message());
  }
  for (const std::string& name : owned) {
    if (fs::exists(saved / name, error)) continue;
    fs::remove(folder / name, error);
    check(!error, "[write] {}: {}", (folder / name).string(), error.message());
  }
  rename_synced(saved, part.path / kSaved);  // also syncs the earlier steps
}

/// Only regular files may be replaced. Links are not followed here, so a link would be lost.
void check_replaceable(const fs::path& folder, const std::set<std::string>& names) {
  for (const std::string& name : names) {
    std::error_code ignored;
    const fs::file_type type = fs::symlink_status(folder / name, ignored).type();
    check(type == fs::file_type::regular || type == fs::file_type::not_found,
          "[write] {}: is not a regular file; remove it, or write into another folder", (folder / name).string());
  }
}

}  // namespace

void update_atomically(const fs::path& folder, const std::set<std::string>& owned,
                       const std::function<void(const fs::path& part)>& write) {
  make_folder(folder);
  const FolderLock lock(folder);
  check_replaceable(folder, owned);
  for (const fs::path& entry :
       entries_of(folder)) {  // remains of killed writers; the lock excludes other active writers
    const std::string name = entry.filename().string();
    std::error_code ignored;
    if (name.starts_with(kPartPrefix) && entry.extension() == ".part") fs::remove_all(entry, ignored);
  }
  std::error_code error;
  if (fs::is_directory(folder / kSaved, error)) put_in_place(folder, owned);
  {
    const TemporaryFolder part(part_of(folder));
    write(part.path);
    rename_synced(part.path, folder / kSaved);
  }
  put_in_place(folder, owned);
}

FolderSnapshot::FolderSnapshot(const fs::path& folder, const std::string& marker)
    : saved_(folder / kSaved),
      marker_(folder / marker),
      // The marker is opened first: if it is new and .saved does not exist, all files are in place.
      marker_descriptor_(system::open_inode(marker_)),
      saved_descriptor_(system::open_inode(saved_)) {
  place_ = saved_descriptor_.get() >= 0 ? saved_ : folder;
}

bool FolderSnapshot::still_holds() const {
  // While .saved exists, the files in it are valid, and the marker outside it is being replaced.
  if (saved_descriptor_.get() >= 0) return leads_to(saved_, saved_descriptor_.get());
  return leads_to(saved_, -1) && leads_to(marker_, marker_descriptor_.get());
}

}  // namespace alibi::core
