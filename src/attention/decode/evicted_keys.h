// What a cache still knows of the keys that a head has evicted: enough to bound what they could weigh.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace alibi::kernels {

/// Stretches of keys and the longest of each, nearest last. Stretches grow with their age, so that a million keys are a
/// few dozen of them: a far key's distance outweighs what is lost by a common bound.
class EvictedKeys {
 public:
  struct Stretch {
    int64_t begin, end;
    float norm;  ///< an upper bound of ||k||
  };

  /// Its keys follow those of all before.
  void add(const Stretch& stretch);
  bool empty() const { return stretches_.empty(); }
  int64_t keys() const { return empty() ? 0 : stretches_.back().end; }
  float longest() const { return longest_; }

  /// An upper bound of log(sum of exp(score)) over them, for a query whose position is after theirs. `reach`: the
  /// largest score of a key of norm 1. +infinity where there is none.
  double log_weight(double reach, float slope, int64_t position) const;

  int64_t bytes() const { return static_cast<int64_t>(stretches_.capacity() * sizeof(Stretch)); }

 private:
  std::vector<Stretch> stretches_;
  float longest_ = 0;
};

}  // namespace alibi::kernels
