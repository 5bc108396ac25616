// Measures cached decoding: one new query over a long cache of keys and values.
#pragma once

#include <cstdint>
#include <vector>

#include "alibi/kv_cache.h"
#include "bench/attention_point.h"
#include "bench/ceilings.h"

namespace alibi::bench {

/// Call measure() with rising contexts, because the cache grows from one to the next. Before each timed call the
/// processor's caches are flushed, and another, small cache is decoded from. This imitates a model, where all other
/// layers run between two calls of one layer: its keys and values are not in the processor's caches, but the code is.
class DecodeBench {
 public:
  DecodeBench(const AttentionBenchSettings& settings, DType dtype);
  /// Returns one point per tolerance, timed alternately.
  std::vector<AttentionPoint> measure(int64_t context);
  /// Best rate of reading memory between the calls in bytes per second.
  double bandwidth() const { return memory_.best(); }

 private:
  void fill(int64_t context);

  AttentionBenchSettings settings_;
  AttentionInputs inputs_;  ///< the first rows of keys and values, and a query
  KvCache cache_;
  KvCache other_;  ///< stands for another layer
  MemoryReader memory_;
};

}  // namespace alibi::bench
