// The log that training writes after each update: MODEL/metrics.jsonl, and the same for TensorBoard in
// MODEL/tensorboard.
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
  /// Continues the files after `step` updates. Entries of later updates, written before the run was interrupted, are
  /// removed, so that no step occurs twice. Step 0 starts new files.
  Metrics(const std::filesystem::path& model_folder, int64_t step);

  void add(const TrainStatus& status);
  /// Call this before a checkpoint is written, so that the files contain all steps of the checkpoint.
  void sync();
  /// Whether the files are still in their folder. The folder may have been removed or moved.
  bool is_in_place() const { return lines_->is_in_place(); }
  /// Writes the lines so far to their folder again.
  void write_again(int64_t step);

 private:
  void open(int64_t step);

  std::filesystem::path folder_;
  std::unique_ptr<core::AppendFile> lines_, tensorboard_;
};

/// MODEL/loss.svg: the loss of the run against the tokens seen. `batch_tokens` is the number of tokens in an update.
std::string loss_figure(const TrainState& state, int64_t batch_tokens);

}  // namespace alibi::training
