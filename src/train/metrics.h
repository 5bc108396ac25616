// What training writes down after each update: MODEL/metrics.jsonl, and the same for TensorBoard in MODEL/tensorboard.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

#include "alibi/train.h"
#include "core/files.h"
#include "train/checkpoint.h"

namespace alibi::training {

class Metrics {
 public:
  /// Continues the files after `step` updates: entries of later ones, written before the run was stopped, are removed,
  /// so that no step is there twice. Step 0 starts new files.
  Metrics(const std::filesystem::path& model_folder, int64_t step);

  void add(const TrainStatus& status);
  /// Call before a checkpoint is written, so that the files have all steps of the checkpoint.
  void sync();
  /// Whether the lines are still where they were written: somebody may have removed or moved the folder.
  bool is_in_place() const { return lines_->is_in_place(); }
  /// Writes what has been written before to where it should be.
  void write_again(int64_t step);

 private:
  void open(int64_t step);

  std::filesystem::path folder_;
  std::unique_ptr<core::AppendFile> lines_, tensorboard_;
};

/// MODEL/loss.svg: the loss of the run against the tokens it has seen. `batch_tokens`: of an update.
std::string loss_figure(const TrainState& state, int64_t batch_tokens);

}  // namespace alibi::training
