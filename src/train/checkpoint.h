// Checkpoints of a run: folders MODEL/checkpoints/step-000120. Each is a complete model folder that also contains the
// state of the training. docs/reference/training.md lists the files.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "alibi/train.h"
#include "core/files.h"
#include "formats/json.h"
#include "train/optimizer.h"

namespace alibi::training {

/// The progress of a run. The position in the data and all random numbers follow from `step`.
struct TrainState {
  int64_t step = 0;    ///< number of finished updates
  int64_t tokens = 0;  ///< number of tokens in these updates
  double seconds = 0;
  bool finished = false;
  std::vector<float> loss;  ///< loss of each update
  std::vector<TrainEvaluation> evaluations;

  std::optional<TrainEvaluation> best() const;
  /// Number of evaluations since the best one.
  int64_t evaluations_without_gain() const;
};

/// A checkpoint whose files have been checked.
struct Checkpoint {
  CheckpointInfo info;
  TrainState state;        ///< does not contain the losses of the updates
  formats::Json identity;  ///< see identity_of()
};

/// The folder of the run that wrote this model: for a checkpoint the one that has it, else `model` itself.
std::filesystem::path run_folder_of(const std::filesystem::path& model);

/// See newest_checkpoint().
std::optional<Checkpoint> find_newest(const std::filesystem::path& model_folder);

/// Loads weights and optimizer state of an intact checkpoint, on a rank that does not write the folder.
void load_checkpoint(const std::filesystem::path& model_folder, int64_t step, LanguageModel& model,
                     OptimizerState& optimizer);

/// Removes unfinished checkpoints and files of killed processes. The caller must hold a lock on the folder or on one of
/// its parents.
void remove_leftovers(const std::filesystem::path& model_folder);

/// The checkpoints of one model folder. The folder is locked against other processes during the object's lifetime.
class Checkpoints {
 public:
  /// Creates the folder and removes unfinished checkpoints of earlier processes.
  explicit Checkpoints(const std::filesystem::path& model_folder);

  /// Writes into a temporary folder, syncs every file and folder, then renames it, so a checkpoint is either complete
  /// or absent.
  void write(const LanguageModel& model, std::vector<formats::StreamedTensor> optimizer, const TrainState& state,
             const formats::OrderedJson& identity) const;
  /// Loads weights and optimizer state. Removes newer checkpoints, which are damaged. Throws Error if the checkpoint
  /// belongs to a run with another identity.
  TrainState resume(const Checkpoint& checkpoint, LanguageModel& model, OptimizerState& optimizer,
                    const formats::OrderedJson& identity) const;
  /// Loads the weights that the model had after `step` updates. Throws Error if that checkpoint is damaged.
  void load_weights(int64_t step, LanguageModel& model) const;
  /// Removes all checkpoints except the newest `keep` ones and the best one.
  void prune(int64_t keep, const std::optional<TrainEvaluation>& best) const;
  void remove_all() const;
  /// Returns false if the folder was removed or moved.
  bool is_in_place() const { return lock_.is_in_place(); }

 private:
  std::filesystem::path folder_;
  core::FolderLock lock_;
};

}  // namespace alibi::training
