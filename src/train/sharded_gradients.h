// The gradients of an update. Its blocks are divided into shards. Each rank computes the gradients of some shards, and
// the sums over all shards follow a fixed tree, so they have the same bits at any number of ranks.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "alibi/train.h"
#include "ranks/tree.h"
#include "train/batches.h"
#include "train/owners.h"

namespace alibi::training {

class Background;

/// Throws UsageError unless this number of ranks can divide the work.
void check_ranks(int ranks, const TrainOptions& options);

class ShardedGradients {
 public:
  /// `group` is null if there are no other ranks. Keeps the references.
  ShardedGradients(ranks::Group* group, const Owners& owners, LanguageModel& model, const TrainOptions& options);
  ~ShardedGradients();

  struct Sums {
    UpdateLoss update;
    double norm = 0;  ///< Euclidean norm of all gradients, in float64
  };
  /// Sets the model's gradients to those of the mean loss over the blocks of update `step`: all of them without other
  /// ranks, otherwise the parts that this rank owns. With other ranks, the gradients of a layer are exchanged while the
  /// backward pass computes those of the layers before it.
  Sums compute(BlockOrder& order, int64_t step);

  /// Indices of the parameters whose gradients are exchanged together: those of each layer, from the last to the first,
  /// and all others.
  const std::vector<std::vector<size_t>>& groups() const { return groups_; }

 private:
  /// The gradients of this rank's shards: earlier ones in `earlier_`, the last one in the parameters.
  const Tensor& gradient(size_t node, size_t parameter) const;
  /// The micro-batches of a shard. With ranks that divide the sequences, shard `part * options.shards + i` has this
  /// part of the tokens of the blocks that shard i has otherwise.
  std::span<const MicroBatch> blocks_of(const Update& update, int shard) const;
  /// The ranks that divide the sequences of this length of which this rank may have a part.
  std::vector<int> dividers(int64_t length) const;
  bool has_part_of(const Update& update, const MicroBatch& batch) const;
  double accumulate(const Update& update, const MicroBatch& batch);
  double accumulate_last(const Update& update);
  void keep(int shard);
  void finish(size_t group_of_parameters);
  Sums sums_of_all(const Update& update, const std::vector<double>& losses);

  ranks::Group* group_;
  const Owners& owners_;
  LanguageModel& model_;
  const TrainOptions& options_;
  std::vector<Parameter*> parameters_;
  int shards_;         // parts of the update whose gradients are summed apart
  ranks::Shards own_;  // those of this rank
  std::vector<std::vector<size_t>> groups_;
  std::vector<ranks::Shards> nodes_;          // of earlier_
  std::vector<std::vector<Tensor>> earlier_;  // [node][parameter]
  std::vector<std::vector<Tensor>> spare_;    // memory for gradients
  std::unique_ptr<Background> background_;    // exchanges gradients
};

}  // namespace alibi::training
