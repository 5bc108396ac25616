// Measures attention over whole sequences: forward, and forward with backward.
#pragma once

#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "bench/attention_point.h"
#include "bench/ceilings.h"

namespace alibi::bench {

/// Measures one data type. Inputs are made for the greatest length and sliced for the others.
class AttentionBench {
 public:
  /// `ceilings` must have the same data type. Its products alternate with the measured calls.
  AttentionBench(const AttentionBenchSettings& settings, DType dtype, int64_t greatest_length,
                 MatmulCeilings& ceilings);
  ~AttentionBench();

  /// Returns one point per tolerance, timed alternately. Call it with rising lengths for each pass, because the time of
  /// a length is predicted from shorter ones.
  std::vector<AttentionPoint> measure(Pass pass, int64_t length);

  /// Share of the blocks visited at `length`, by [layer][head], at the default tolerance.
  std::vector<std::vector<double>> visited_by_head(int64_t length) const;

 private:
  struct Candidate;
  std::vector<AttentionInputs> layers_of(int64_t length) const;
  /// Predicted seconds of one call, from shorter lengths; 0 if there is no prediction.
  double expected(const AttentionPoint& point, const AttentionInputs& layer) const;
  /// Runs the call for the first time, which measures blocks and memory. Returns its seconds.
  double run_once(Candidate& candidate) const;

  AttentionBenchSettings settings_;
  DType dtype_;
  std::vector<AttentionInputs> layers_;
  MatmulCeilings& ceilings_;
  std::map<std::pair<Pass, float>, std::vector<AttentionPoint>> measured_;
};

}  // namespace alibi::bench
