// A call whose tensors have only a part of the keys of its sequences, because other ranks have the rest
// (halo/sequence_parallel.cc). Numbers of key rows and key blocks are those of the whole sequence, so that a kernel
// decides as in a call that has all keys. Sequence::key_begin is minus the first row of the part.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "attention/blocks.h"

namespace alibi::kernels {

class WeightBounds;

struct KeyPart {
  KeyPart(const Problem& problem, Range tensor_rows, std::vector<Range> fetched_rows)
      : rows(tensor_rows),
        fetched(std::move(fetched_rows)),
        missing(problem.sequences.size() * static_cast<size_t>(problem.kv_heads)) {}

  /// A side on which a query needs keys that were not fetched.
  enum Missing : uint8_t { before = 1, after = 2 };

  Range rows;                            ///< the key rows of the tensors
  std::vector<Range> fetched;            ///< [sequences * kv_heads]: rows that have values, in whole key blocks
  const WeightBounds* bounds = nullptr;  ///< of all keys; null if the skip rule does not apply
  std::vector<float> maxima;             ///< Kernel::key_maxima of all keys
  mutable std::vector<std::atomic<uint8_t>> missing;  ///< [sequences * kv_heads]: sides that were needed and not there

  static size_t at(const Problem& problem, size_t sequence, int64_t kv_head) {
    return sequence * static_cast<size_t>(problem.kv_heads) + static_cast<size_t>(kv_head);
  }
};

/// The key blocks that a kernel may read: all, or those that were fetched.
inline Range readable_key_blocks(const Problem& problem, size_t sequence, int64_t kv_head, int64_t block_rows) {
  const Range all = {0, problem.sequences[sequence].keys};
  if (problem.part == nullptr) return blocks_of(all, block_rows);
  return blocks_of(problem.part->fetched[KeyPart::at(problem, sequence, kv_head)], block_rows);
}

/// Notes that a query block needed a key block on a side where it was not fetched.
inline void note_missing(const Problem& problem, size_t sequence, int64_t kv_head, KeyPart::Missing side) {
  problem.part->missing[KeyPart::at(problem, sequence, kv_head)] |= side;
}

}  // namespace alibi::kernels
