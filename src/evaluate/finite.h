// What a model that overflows gives is told, not added up or written down.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>

#include "alibi/error.h"

namespace alibi::evaluation {

/// Throws NotFiniteError: `what` number `index` (counted from 0) is infinite or not a number.
inline void check_finite(const char* operation, float value, const char* what, int64_t index) {
  if (std::isfinite(value)) [[likely]]
    return;
  throw NotFiniteError(
      fmt::format("[{}] the {} {} is {}, expected a finite number: the model overflows, its weights are too large",
                  operation, what, index, value));
}

}  // namespace alibi::evaluation
