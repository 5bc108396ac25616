// How far the queries of a rank look: bounds of the weight of all keys of a sequence, from the parts that the ranks
// measured, and the keys that a rank's queries need by these bounds (docs/explanation/skip-rule.md).
#pragma once

#include <memory>
#include <vector>

#include "attention/halo/exchange.h"
#include "attention/kernel.h"
#include "attention/key_part.h"
#include "attention/skip/weights.h"

namespace alibi::kernels::halo {

/// The same call in two views: that of one process with all rows, without tensors, and that of a rank's shard.
struct Views {
  Problem whole, own;
  DividedSequence layout;
};

/// Samples of the queries and keys of all ranks, from which the bounds take centres and typical lengths.
class Samples {
 public:
  /// Also finds out which of `kernels` support the call on every rank. All ranks call it.
  Samples(const SequenceRanks& ranks, const Views& views, const std::vector<const Kernel*>& kernels);
  bool supported(size_t kernel) const { return supported_[kernel]; }
  WeightBounds::LoadSample load() const;

 private:
  const float* row(int64_t sample) const { return rows_[static_cast<size_t>(sample)]; }

  int64_t heads_, kv_heads_, size_;
  std::vector<bool> supported_;
  std::vector<std::vector<float>> parts_;  // of each rank: a number for each kernel, then the rows of its samples
  std::vector<const float*> rows_;         // of each sample: [batch][kv_heads + heads][size]
};

/// What a kernel needs to know of all keys.
struct KeysOfAllRanks {
  std::unique_ptr<WeightBounds> bounds;  ///< null if the skip rule does not apply
  std::vector<float> maxima;
};
/// All ranks call it.
KeysOfAllRanks measure(const SequenceRanks& ranks, const Views& views, const Kernel& kernel, const Samples& samples);

/// The keys that the queries of this rank need, and its own: [batch * kv_heads], in whole key blocks.
std::vector<Range> reach(const Views& views, const Range& shard, const Kernel& kernel, const WeightBounds* bounds);

}  // namespace alibi::kernels::halo
