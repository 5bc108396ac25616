// Atomic update of several files of a folder: a reader finds all files of one write, never a mixture, even during a
// write and after a killed writer.
#pragma once

#include <filesystem>
#include <functional>
#include <set>
#include <string>

#include "core/check.h"

namespace alibi::core {

/// `write` fills an empty folder; its files then replace those of the same names in `folder` (which is made), and files
/// of the names `owned` that it did not write are removed. Other files stay. First FOLDER/.saving.PID.part is filled
/// and synced. Renaming it to FOLDER/.saved puts the new files in force. Then each file is moved to its place, and
/// .saved is removed. The remains of a killed writer are completed or removed first. Throws Error if another process is
/// writing there, or if one of the names belongs to something other than a regular file.
void write_together(const std::filesystem::path& folder, const std::set<std::string>& owned,
                    const std::function<void(const std::filesystem::path& part)>& write);

/// The place of the files of a folder now, and whether it has changed since.
class TogetherSnapshot {
 public:
  /// `marker` is a file that every write replaces.
  TogetherSnapshot(const std::filesystem::path& folder, const std::string& marker);
  ~TogetherSnapshot();
  TogetherSnapshot(const TogetherSnapshot&) = delete;
  TogetherSnapshot& operator=(const TogetherSnapshot&) = delete;

  /// The folder, or its subfolder .saved.
  const std::filesystem::path& place() const { return place_; }
  bool still_holds() const;

 private:
  std::filesystem::path saved_, marker_, place_;
  // Kept open, so that no other file gets their inode numbers; -1 if there is none.
  int marker_descriptor_, saved_descriptor_;
};

/// Calls read(place) on the files of one write, again if they changed during the call.
template <class Read>
auto read_together(const std::filesystem::path& folder, const std::string& marker, const Read& read) {
  constexpr int most = 100;
  for (int i = 0; i < most; ++i) {
    const TogetherSnapshot snapshot(folder, marker);
    try {
      auto result = read(snapshot.place());
      if (snapshot.still_holds()) return result;
    } catch (const Error&) {
      if (snapshot.still_holds()) throw;
    }
  }
  fail("[read] {}: it was rewritten {} times while it was read", folder.string(), most);
}

}  // namespace alibi::core
