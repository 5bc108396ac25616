// Files of a folder that change together: a reader finds all of one writing, never some of two, whenever the writer is
// killed and while it writes.
#pragma once

#include <filesystem>
#include <functional>
#include <set>
#include <string>

#include "core/check.h"

namespace alibi::core {

/// `write` fills an empty folder; its files then replace those of the same names in `folder` (which is made), and files
/// of the names `owned` that it did not write are removed. Other files stay. First FOLDER/.saving.PID.part is filled
/// and synced; its renaming to FOLDER/.saved is the moment of change; then each file goes to its place, and .saved
/// away. What a killed writer left is finished or removed before. Throws Error if another process is writing
/// there, or if one of the names is taken by something else than a regular file.
void write_together(const std::filesystem::path& folder, const std::set<std::string>& owned,
                    const std::function<void(const std::filesystem::path& part)>& write);

/// Where the files of a folder are at this moment, and whether that is still so later.
class TogetherSnapshot {
 public:
  /// `marker` is a file that every writing replaces.
  TogetherSnapshot(const std::filesystem::path& folder, const std::string& marker);
  ~TogetherSnapshot();
  TogetherSnapshot(const TogetherSnapshot&) = delete;
  TogetherSnapshot& operator=(const TogetherSnapshot&) = delete;

  /// The folder, or its .saved.
  const std::filesystem::path& place() const { return place_; }
  bool still_holds() const;

 private:
  std::filesystem::path saved_, marker_, place_;
  // Open as long as this lives, so that nothing else gets their numbers; -1: there is none.
  int marker_descriptor_, saved_descriptor_;
};

/// read(place) for the files of one writing: again if they changed meanwhile.
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
  fail("[read] {}: it was written anew {} times while it was read", folder.string(), most);
}

}  // namespace alibi::core
