// Checkpoints of a run: folders MODEL/checkpoints/step-000120, each a model folder by itself with the state of the
// training beside the weights. docs/reference/training.md lists the files.
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

/// The progress of a run. The place in the data and all random numbers follow from `step`.
struct TrainState {
  int64_t step = 0;    ///< updates done
  int64_t tokens = 0;  ///< seen in them
  double seconds = 0;
  bool finished = false;
  std::vector<float> loss;  ///< of each update
  std::vector<TrainEvaluation> evaluations;

  std::optional<TrainEvaluation> best() const;
  /// Evaluations after the best one.
  int64_t evaluations_without_gain() const;
};

/// A checkpoint whose files have been checked.
struct Checkpoint {
  CheckpointInfo info;
  TrainState state;        ///< without the losses of the updates
  formats::Json identity;  ///< see identity_of()
};

/// As newest_checkpoint().
std::optional<Checkpoint> find_newest(const std::filesystem::path& model_folder);

/// Removes unfinished checkpoints and files of killed processes. The caller holds a lock on the folder or on a folder
/// above it.
void remove_leftovers(const std::filesystem::path& model_folder);

/// The checkpoints of one model folder, locked against other processes while this lives.
class Checkpoints {
 public:
  /// Makes the folder, and removes unfinished checkpoints of earlier processes.
  explicit Checkpoints(const std::filesystem::path& model_folder);

  /// Writes into another folder, syncs every file and folder, then renames: a checkpoint is whole or absent.
  void write(const LanguageModel& model, const OptimizerState& optimizer, const TrainState& state,
             const formats::OrderedJson& identity) const;
  /// Loads weights and optimizer, and removes newer checkpoints, which are damaged. Throws Error if the checkpoint
  /// belongs to a run with another identity.
  TrainState resume(const Checkpoint& checkpoint, LanguageModel& model, OptimizerState& optimizer,
                    const formats::OrderedJson& identity) const;
  /// The weights that the model had after `step` updates. Throws Error if that checkpoint is damaged.
  void load_weights(int64_t step, LanguageModel& model) const;
  /// Removes all but the newest `keep` and the best.
  void prune(int64_t keep, const std::optional<TrainEvaluation>& best) const;
  void remove_all() const;
  /// False if somebody has removed or moved the folder.
  bool is_in_place() const { return lock_.is_in_place(); }

 private:
  std::filesystem::path folder_;
  core::FolderLock lock_;
};

}  // namespace alibi::training
