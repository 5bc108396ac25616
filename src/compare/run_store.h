// The folder of a comparison: what it is, and each run with how far it is. A killed comparison goes on from it.
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

/// A run, and which of its parts are done: the training first, then one evaluation after the other.
struct StoredRun {
  RunResults results;
  bool trained = false;  ///< the model lies in the run's folder
  bool done = false;
};

class RunStore {
 public:
  /// Makes the folder and holds it. An empty path: nothing is kept, all below do nothing.
  explicit RunStore(const std::filesystem::path& folder);

  /// Says what the comparison is. Throws Error if the folder holds another one, naming what differs; `overwrite`
  /// removes that one first.
  void open(const formats::OrderedJson& identity, bool overwrite);

  bool keeps() const { return !folder_.empty(); }
  /// Of a run's model, relative to the comparison's.
  static std::string model_folder(const RunResults& run);
  std::filesystem::path path_of(const RunResults& run) const { return folder_ / model_folder(run); }
  /// As far as it is; one that has not begun is as given.
  StoredRun load(const RunResults& begun) const;
  void save(const StoredRun& run) const;

  /// A small result that other work hangs on, by name; nothing if it is not there.
  std::optional<formats::JsonObject> load_note(const std::string& name) const;
  void save_note(const std::string& name, const formats::OrderedJson& note) const;

 private:
  void forget() const;

  std::filesystem::path folder_;
  std::optional<core::FolderLock> lock_;
};

}  // namespace alibi::comparison
