// A matrix inside a larger buffer of sentinels: its rows are strided, and any write outside shows.
#pragma once

#include "testing.h"

namespace alibi::test {

struct Framed {
  static constexpr float sentinel = 12352;  // bfloat16 holds it
  /// rows x columns of random numbers.
  Framed(int64_t rows, int64_t columns, uint64_t seed, DType dtype = DType::float32)
      : buffer({rows + 2, columns + 7}, dtype) {
    buffer.fill(sentinel);
    inside = buffer.slice(0, 1, rows + 1).slice(1, 3, columns + 3);
    inside.copy_from(random_tensor({rows, columns}, seed, 1, dtype));
  }
  /// To be asked last: it overwrites the matrix.
  bool frame_is_intact() {
    inside.fill(sentinel);
    for (const float value : buffer.to_floats()) {
      if (value != sentinel) return false;
    }
    return true;
  }
  Tensor buffer, inside;
};

}  // namespace alibi::test
