// Random forget gates (AttentionOptions::log_decay).
#pragma once

#include <limits>

#include "testing.h"

namespace alibi::test {

inline constexpr float document = -std::numeric_limits<float>::infinity();

enum class Gates : int64_t { mild, strong, sharp, documents };

/// Random gates [batch, keys, heads]. Sharp ones are far larger than what differences of float32 sums could hold.
inline Tensor random_gates(const Shape& shape, uint64_t seed, Gates kind) {
  Tensor gates(shape);
  const core::Random random(seed);
  for (int64_t i = 0; i < gates.elements(); ++i) {
    const float u = random.uniform(static_cast<uint64_t>(2 * i)),
                pick = random.uniform(static_cast<uint64_t>(2 * i + 1));
    float& gate = gates.data<float>()[i];
    gate = -u * (kind == Gates::strong ? 2.0f : 0.05f);
    if (kind == Gates::sharp && pick < 0.03f) gate = pick < 0.01f ? -1e9f : -3000 * u;
    if (kind == Gates::documents && pick < 0.02f) gate = document;
  }
  return gates;
}

}  // namespace alibi::test
