// Messages of ranks that divide a sequence: rows of keys, values and gates for the ranks that need them, and the
// gradients of these rows back.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "alibi/sequence_parallel.h"
#include "attention/problem.h"

namespace alibi::kernels::halo {

/// A sequence that is divided over ranks.
struct DividedSequence {
  int64_t length = 0;
  int64_t batch = 0, kv_heads = 0;

  Range shard(const SequenceRanks& ranks, int rank) const {
    const SequenceShard shard = sequence_shard(length, rank, ranks.count);
    return {shard.first, shard.first + shard.rows};
  }
  /// Number of (batch entry, key/value head) pairs.
  size_t pairs() const { return static_cast<size_t>(batch * kv_heads); }
};

/// The key rows that each rank reads: [ranks][batch * kv_heads].
using KeyRanges = std::vector<Range>;

/// Values of every rank for all ranks: the part of this rank is sent, those of the others are received.
void all_gather(const SequenceRanks& ranks, std::span<const std::span<std::byte>> parts);
template <class T>
void all_gather(const SequenceRanks& ranks, std::vector<std::vector<T>>& parts) {
  std::vector<std::span<std::byte>> bytes;
  for (std::vector<T>& part : parts) bytes.push_back(std::as_writable_bytes(std::span(part)));
  all_gather(ranks, bytes);
}

/// Rows that a rank has or needs, of tensors [batch, rows, kv_heads, any number].
struct RankRows {
  Range range;
  std::vector<Tensor> tensors;
};
/// Fills the rows in `needs` of this rank. `own` has the shard of this rank.
void fetch(const SequenceRanks& ranks, const DividedSequence& layout, const KeyRanges& needs, const RankRows& own,
           RankRows& window);
/// Sends gradients of rows of other ranks to them. The tensors of `own` become the sums of all ranks' parts, which are
/// added in the order of the ranks.
void give_back(const SequenceRanks& ranks, const DividedSequence& layout, const KeyRanges& needs,
               const RankRows& window, RankRows& own);

}  // namespace alibi::kernels::halo
