// The folder of a comparison: its settings and the state of each run. A killed comparison continues from it.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "alibi/results.h"
#include "core/files.h"
#include "formats/json.h"

namespace alibi::comparison {

/// A run, and which of its parts are done: first the training, then the evaluations in order.
struct StoredRun {
  RunResults results;
  bool trained = false;  ///< the model lies in the run's folder
  bool done = false;
};

class RunStore {
 public:
  /// Makes the folder and locks it. With an empty path nothing is saved, and all functions below do nothing.
  explicit RunStore(const std::filesystem::path& folder);

  /// Writes the settings of the comparison. Throws Error if the folder holds another one, and names what differs;
  /// `overwrite` removes that one first.
  void open(const formats::OrderedJson& identity, bool overwrite);

  bool keeps() const { return !folder_.empty(); }
  /// Folder of a run's model, relative to the folder of the comparison.
  static std::string model_folder(const RunResults& run);
  std::filesystem::path path_of(const RunResults& run) const { return folder_ / model_folder(run); }
  /// The saved state of the run, or the run as given if it has not begun.
  StoredRun load(const RunResults& begun) const;
  void save(const StoredRun& run) const;

  /// A small result that other work depends on, by name; nothing if it was not saved.
  std::optional<formats::JsonObject> load_note(const std::string& name) const;
  void save_note(const std::string& name, const formats::OrderedJson& note) const;

 private:
  void forget() const;

  std::filesystem::path folder_;
  std::optional<core::FolderLock> lock_;
};

}  // namespace alibi::comparison
