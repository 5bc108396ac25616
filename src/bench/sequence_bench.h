// Attention over ranks that divide one sequence, in comparison with one process: traffic, load, bits and gradients. The
// ranks are threads of this process.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "bench/attention_inputs.h"

namespace alibi::bench {

struct SequencePoint {
  DType dtype = DType::float32;
  int64_t length = 0;
  int ranks = 1;
  float tolerance = 0;
  std::vector<int64_t> visited;                        ///< block pairs that each rank computed
  std::vector<int64_t> forward_bytes, backward_bytes;  ///< that each rank sent
  /// What a rank sends in ring attention, which passes each shard of keys and values to all ranks, and in the backward
  /// pass their gradients too.
  int64_t ring_forward_bytes = 0, ring_backward_bytes = 0;
  bool same_bits = false;         ///< output and log-sum-exps are those of one process
  double dq = 0, dk = 0, dv = 0;  ///< largest difference of gradients, relative to the largest gradient

  /// The mean number of visited blocks of a rank divided by the largest.
  double balance() const;
  double forward_share() const;  ///< bytes of all ranks divided by those of ring attention
  double backward_share() const;
};

/// Both passes over `ranks` ranks and in one process. The tolerance is that of the inputs' options.
SequencePoint measure_sequence(const AttentionInputs& inputs, int ranks, uint64_t seed);

std::string sequence_table_head();
std::string sequence_table_row(const SequencePoint& point);
nlohmann::ordered_json to_json(const SequencePoint& point);

}  // namespace alibi::bench
