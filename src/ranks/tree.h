// Sums over a fixed binary tree of shards. A sum has the same bits at any number of ranks, because the tree depends
// only on the number of shards.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <utility>
#include <vector>

#include "ranks/group.h"

namespace alibi::ranks {

/// The shards [first, last): those of a rank, or those below a node of the tree.
struct Shards {
  int first, last;
  int count() const { return last - first; }
  bool operator==(const Shards&) const = default;
};

/// The shards of a rank: contiguous, and as many as those of any other rank or one more.
Shards shards_of(int rank, int ranks, int shards);

/// Where the tree divides a node: after the largest power of two that is less than its number of shards.
int middle_of(Shards node);

/// The largest nodes of the tree over `shards` shards that lie within a range, in rising order. A rank can sum each of
/// them alone.
std::vector<Shards> nodes_within(Shards range, int shards);

/// The sums that turn the given nodes, in rising order, into the largest ones: indices of the left node, which takes
/// the sum, and of the right one, in the order of the sums.
std::vector<std::pair<size_t, size_t>> sums_of(std::span<const Shards> nodes, Shards range, int shards);

/// to += from.
void add(std::span<const float> from, std::span<float> to);

/// A step of the reduction: every rank has values for each of its nodes, and every rank owns some of the elements.
struct Reduction {
  std::span<const int64_t> elements;  ///< number of elements that each rank owns
  /// Copies the values of this rank's node with the given index that `owner` owns.
  std::function<void(size_t node, int owner, std::span<float> to)> pack;
};
/// Sends each owner the values of this rank's nodes, and returns the sums over all shards of the elements that this
/// rank owns.
std::vector<float> reduce_scatter(Group& group, int shards, const Reduction& reduction);

}  // namespace alibi::ranks
