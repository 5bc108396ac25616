// Settings and results of the attention benchmark.
#pragma once

#include <cstdint>
#include <vector>

#include "bench/attention_inputs.h"

namespace alibi::bench {

enum class Pass : uint8_t {
  forward,   ///< all queries of a sequence
  backward,  ///< forward and backward together
  decode,    ///< one new query over a cache of `length` keys
};
const char* name_of(Pass pass);

/// Smaller than the rounding error of the results: 2^-24 for float32, 2^-11 for bfloat16.
float default_tolerance(DType dtype);

struct AttentionBenchSettings {
  AttentionShape shape;                      ///< shape of random inputs
  std::vector<AttentionInputs> layers = {};  ///< captured inputs to use instead; results are then means over the layers
  std::vector<float> tolerances = {};        ///< empty selects 0 and the default tolerance
  double seconds = 0.5;                      ///< time for each point
  double longest = 5;                        ///< a point is skipped if a single call would take longer
  uint64_t seed = 0;
  int64_t memory_bytes = int64_t{1} << 29;  ///< decode: bytes read to flush the caches and to measure memory bandwidth

  /// Tolerances to measure. Without slopes and gates this is only 0.
  std::vector<float> tolerances_of(DType dtype) const;
};

/// Measurements of one call at one tolerance.
struct AttentionPoint {
  Pass pass = Pass::forward;
  DType dtype = DType::float32;
  int64_t length = 0;
  float tolerance = 0;
  double expected_seconds = 0;  ///< above 0 if the point was skipped because one call would take about this long

  double seconds = 0;          ///< median
  double best_seconds = 0;     ///< minimum
  double forward_seconds = 0;  ///< backward pass: seconds of its forward part
  int64_t runs = 0;
  double flops = 0;    ///< nominal, counting all visible pairs: 4 H L^2 / 2 d forward, 2.5 times that backward
  double ceiling = 0;  ///< FLOP/s, median of the matrix products that ran alternately with the call
  double visited = 1;  ///< share of the visible blocks that were computed
  std::vector<double> visited_each = {};  ///< the same for each captured layer
  int64_t peak_bytes = 0;                 ///< tensors and workspaces at the peak of a call, without inputs and outputs
  int64_t peak_resident = 0;              ///< growth of the process at the peak of a call; 0 if unknown

  double bytes_read = 0;    ///< decode: bytes of keys and values in the visited blocks
  double warm_seconds = 0;  ///< decode: seconds without flushing the caches between calls

  bool left_out() const { return expected_seconds > 0; }
  /// Nominal rate: skipped work counts as done.
  double rate() const { return flops / seconds; }
};

}  // namespace alibi::bench
