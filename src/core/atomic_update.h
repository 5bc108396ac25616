// Atomic update of several files in a folder. A reader always sees all files of one write, even during a write and
// after a writer was killed.
#pragma once

#include <filesystem>
#include <functional>
#include <set>
#include <string>

#include "core/check.h"
#include "core/descriptor.h"

namespace alibi::core {

/// `write` fills an empty folder. Its files then replace the files of the same names in `folder`, which is created if
/// needed. Files named in `owned` that `write` did not create are removed. Other files stay. Steps:
/// FOLDER/.saving.PID.part is filled and synced. Renaming it to FOLDER/.saved makes the new files valid. Then each file
/// is moved to its place, and .saved is removed. The remains of a killed writer are first completed or removed. Throws
/// Error if another process is writing to the folder, or if one of the names belongs to something other than a regular
/// file.
void update_atomically(const std::filesystem::path& folder, const std::set<std::string>& owned,
                       const std::function<void(const std::filesystem::path& part)>& write);

/// The current location of a folder's files, and whether the files have changed since.
class FolderSnapshot {
 public:
  /// `marker` is a file that every write replaces.
  FolderSnapshot(const std::filesystem::path& folder, const std::string& marker);

  /// The folder or its subfolder .saved.
  const std::filesystem::path& place() const { return place_; }
  bool still_holds() const;

 private:
  std::filesystem::path saved_, marker_, place_;
  // Kept open, so that no other file gets their inode numbers. -1 if the file does not exist.
  Descriptor marker_descriptor_, saved_descriptor_;
};

/// Calls read(place) on the files of one write. Repeats the call if they changed meanwhile.
template <class Read>
auto read_atomically(const std::filesystem::path& folder, const std::string& marker, const Read& read) {
  constexpr int most = 100;
  for (int i = 0; i < most; ++i) {
    const FolderSnapshot snapshot(folder, marker);
    try {
      auto result = read(snapshot.place());
      if (snapshot.still_holds()) return result;
    } catch (const Error&) {
      if (snapshot.still_holds()) throw;
    }
  }
  fail(
      "[read] {}: the files changed during each of {} attempts to read them; try again after the other process "
      "has finished",
      folder.string(), most);
}

}  // namespace alibi::core
