// Measures attention over whole sequences: forward, and forward with backward.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "bench/attention_point.h"
#include "bench/ceilings.h"

namespace alibi::bench {

/// Measures one data type. Inputs are made for the greatest length and shortened for the others.
class AttentionBench {
 public:
  /// `ceilings` must have the same data type. Their products alternate with the measured calls.
  AttentionBench(const AttentionBenchSettings& settings, DType dtype, int64_t greatest_length,
                 MatmulCeilings& ceilings);
  ~AttentionBench();

  /// One point for each tolerance, timed alternately. Lengths of one pass should rise, because the time of a length is
  /// predicted from shorter ones.
  std::vector<AttentionPoint> measure(Pass pass, int64_t length);

  /// Share of the blocks visited at `length` by [layer][head], at the default tolerance.
  std::vector<std::vector<double>> visited_by_head(int64_t length) const;

 private:
  struct Candidate;
  std::vector<AttentionInputs> layers_of(int64_t length) const;
  /// Seconds that one call should take, predicted from shorter lengths; 0 if nothing is known.
  double expected(const AttentionPoint& point, const AttentionInputs& layer) const;
  /// Makes the first run, which measures blocks and memory. Returns its seconds.
  double run_once(Candidate& candidate) const;

  AttentionBenchSettings settings_;
  DType dtype_;
  std::vector<AttentionInputs> layers_;
  MatmulCeilings& ceilings_;
  std::map<std::pair<Pass, float>, std::vector<AttentionPoint>> measured_;
};

}  // namespace alibi::bench
