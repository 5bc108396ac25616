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

/// Below the rounding of the results: 2^-24 for float32, 2^-11 for bfloat16.
float default_tolerance(DType dtype);

struct AttentionBenchSettings {
  AttentionShape shape;                      ///< of random inputs
  std::vector<AttentionInputs> layers = {};  ///< captured inputs instead; results are means over the layers
  std::vector<float> tolerances = {};        ///< empty: 0 and the default one
  double seconds = 0.5;                      ///< time for each point
  double longest = 5;                        ///< points whose single call would take longer are left out
  uint64_t seed = 0;
  int64_t memory_bytes = int64_t{1} << 29;  ///< decode: what is read to empty the caches and to measure memory

  /// Tolerances to measure: only 0 if there is no linear bias, because nothing can be skipped then.
  std::vector<float> tolerances_of(DType dtype) const;
};

/// One call at one tolerance.
struct AttentionPoint {
  Pass pass = Pass::forward;
  DType dtype = DType::float32;
  int64_t length = 0;
  float tolerance = 0;
  double expected_seconds = 0;  ///< > 0: left out, as one call would have taken about this long

  double seconds = 0;          ///< median
  double best_seconds = 0;     ///< least
  double forward_seconds = 0;  ///< backward: of its forward part
  int64_t runs = 0;
  double flops = 0;    ///< nominal, all visible pairs: 4 H L^2 / 2 d forward, 2.5 times that backward
  double ceiling = 0;  ///< FLOP/s, median of the matrix products that ran alternately with it
  double visited = 1;  ///< share of the visible blocks that was computed
  std::vector<double> visited_each = {};  ///< the same of each captured layer
  int64_t peak_bytes = 0;                 ///< tensors and workspaces at the peak of a call, beyond inputs and outputs
  int64_t peak_resident = 0;              ///< growth of the process at the peak of a call; 0 if not known

  double bytes_read = 0;    ///< decode: keys and values of the blocks visited
  double warm_seconds = 0;  ///< decode: without emptying the caches between calls

  bool left_out() const { return expected_seconds > 0; }
  /// Nominal rate: skipped work counts as done.
  double rate() const { return flops / seconds; }
};

}  // namespace alibi::bench
