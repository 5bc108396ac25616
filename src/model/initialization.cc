#include "model/initialization.h"

#include <cmath>

#include "core/parallel.h"

namespace alibi {

Start Start::xavier(int64_t fan_in, int64_t fan_out, float gain) {
  return uniform(gain * std::sqrt(6.0f / static_cast<float>(fan_in + fan_out)));
}

Start Start::linear(int64_t fan_in) { return uniform(1 / std::sqrt(static_cast<float>(fan_in))); }

void initialize(Tensor& values, Start start, const Random& random) {
  if (start.kind == Start::Kind::constant) return values.fill(start.value);
  float* to = values.data<float>();
  parallel_ranges(values.elements(), 1 << 14, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const auto counter = static_cast<uint64_t>(i);
      to[i] =
          start.value * (start.kind == Start::Kind::normal ? random.normal(counter) : 2 * random.uniform(counter) - 1);
    }
  });
}

}  // namespace alibi
