#include "ranks/tree.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "core/check.h"
#include "core/parallel.h"

namespace alibi::ranks {
namespace {

void collect(Shards node, Shards range, std::vector<Shards>& found) {
  if (node.last <= range.first || range.last <= node.first) return;
  if (range.first <= node.first && node.last <= range.last) return found.push_back(node);
  const int middle = middle_of(node);
  collect({node.first, middle}, range, found);
  collect({middle, node.last}, range, found);
}

/// Sums the nodes within `node` into the first of them, which is returned.
size_t sum(std::span<const Shards> nodes, Shards node, std::vector<std::pair<size_t, size_t>>& sums) {
  const auto at = std::find_if(nodes.begin(), nodes.end(), [&](const Shards& one) { return one.first == node.first; });
  check(at != nodes.end() && at->last <= node.last, "[ranks] the nodes of the tree do not cover the shards {} to {}",
        node.first, node.last - 1);
  const auto index = static_cast<size_t>(at - nodes.begin());
  if (*at == node) return index;
  const int middle = middle_of(node);
  const size_t left = sum(nodes, {node.first, middle}, sums), right = sum(nodes, {middle, node.last}, sums);
  sums.emplace_back(left, right);
  return left;
}

}  // namespace

Shards shards_of(int rank, int ranks, int shards) {
  const auto at = [&](int r) { return static_cast<int>(int64_t{shards} * r / ranks); };
  return {at(rank), at(rank + 1)};
}

int middle_of(Shards node) {
  return node.first + static_cast<int>(std::bit_floor(static_cast<unsigned>(node.count() - 1)));
}

std::vector<Shards> nodes_within(Shards range, int shards) {
  std::vector<Shards> found;
  collect({0, shards}, range, found);
  return found;
}

std::vector<std::pair<size_t, size_t>> sums_of(std::span<const Shards> nodes, Shards range, int shards) {
  std::vector<std::pair<size_t, size_t>> sums;
  for (const Shards& node : nodes_within(range, shards)) sum(nodes, node, sums);
  return sums;
}

void add(std::span<const float> from, std::span<float> to) {
  check(from.size() == to.size(), "[ranks] a sum of {} and {} elements, expected equal numbers", to.size(),
        from.size());
  constexpr int64_t grain = int64_t{1} << 15;
  core::parallel_ranges(std::ssize(to), grain, [&](int64_t begin, int64_t end) {
    const float* x = from.data();
    float* y = to.data();
    for (int64_t i = begin; i < end; ++i) y[i] += x[i];
  });
}

std::vector<float> reduce_scatter(Group& group, int shards, const Reduction& reduction) {
  const int here = group.rank(), ranks = group.size();
  const auto size_of = [&](int rank) { return static_cast<size_t>(reduction.elements[static_cast<size_t>(rank)]); };
  Transfers transfers;
  std::vector<Shards> nodes;                // of all ranks, in rising order
  std::vector<std::vector<float>> values;   // of each, the elements that this rank owns
  std::vector<std::vector<float>> sending;  // kept until they are sent
  for (int rank = 0; rank < ranks; ++rank) {
    const std::vector<Shards> theirs = nodes_within(shards_of(rank, ranks, shards), shards);
    for (size_t i = 0; i < theirs.size(); ++i) {
      nodes.push_back(theirs[i]);
      std::vector<float>& own = values.emplace_back(size_of(here));
      if (rank == here) {
        reduction.pack(i, here, own);
      } else if (!own.empty()) {
        transfers.push_back(group.receive(rank, Tag::gradients, bytes_of(own), theirs[i].first));
      }
    }
  }
  const std::vector<Shards> ours = nodes_within(shards_of(here, ranks, shards), shards);
  for (int i = 1; i < ranks; ++i) {
    const int owner = (here + i) % ranks;
    for (size_t node = 0; node < ours.size() && size_of(owner) > 0; ++node) {
      std::vector<float>& packed = sending.emplace_back(size_of(owner));
      reduction.pack(node, owner, packed);
      transfers.push_back(group.send(owner, Tag::gradients, bytes_of(packed), ours[node].first));
    }
  }
  wait(transfers);
  for (const auto& [left, right] : sums_of(nodes, {0, shards}, shards)) add(values[right], values[left]);
  return std::move(values.front());
}

}  // namespace alibi::ranks
