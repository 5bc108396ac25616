// The folder of a comparison: its settings and the state of each run. An interrupted comparison continues from it.
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

/// A run and which of its parts are done: first the training, then the evaluations in order.
struct StoredRun {
  RunResults results;
  bool trained = false;  ///< the model is in the run's folder
  bool done = false;
};

class RunStore {
 public:
  /// Creates the folder and locks it. If the path is empty, nothing is saved and all functions below do nothing.
  /// `is_first`: on other ranks than 0 the folder is not locked, and open() is not called.
  explicit RunStore(const std::filesystem::path& folder, bool is_first = true);

  /// Writes the settings of the comparison. If the folder contains a different comparison, throws an Error that names
  /// the differences; with `overwrite`, removes that comparison first.
  void open(const formats::OrderedJson& identity, bool overwrite);

  bool keeps() const { return !folder_.empty(); }
  /// Folder of a run's model, relative to the folder of the comparison.
  static std::string model_folder(const RunResults& run);
  std::filesystem::path path_of(const RunResults& run) const { return folder_ / model_folder(run); }
  /// Returns the saved state of the run, or `begun` if nothing was saved.
  StoredRun load(const RunResults& begun) const;
  void save(const StoredRun& run) const;

  /// Loads a small named result that later work depends on, or nothing if it was not saved.
  std::optional<formats::JsonObject> load_note(const std::string& name) const;
  void save_note(const std::string& name, const formats::OrderedJson& note) const;

 private:
  void forget() const;

  std::filesystem::path folder_;
  std::optional<core::FolderLock> lock_;
};

}  // namespace alibi::comparison
