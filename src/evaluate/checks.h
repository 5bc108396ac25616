// Checks of what evaluation is given and of what a model computes.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "alibi/evaluate.h"
#include "core/check.h"

namespace alibi::evaluation {

/// Throws NotFiniteError if `what` number `index` (counted from 0) is infinite or not a number.
inline void check_finite(const char* operation, float value, const char* what, int64_t index) {
  if (std::isfinite(value)) [[likely]]
    return;
  throw NotFiniteError(
      fmt::format("[{}] the {} {} is {}, expected a finite number: the model overflows, its weights are too large",
                  operation, what, index, value));
}

/// The targets of a stream to score: the given segments, or the whole stream if there are none. Throws UsageError for
/// segments that overlap, are not in rising order or leave the stream.
inline std::vector<Segment> segments_to_score(const std::vector<Segment>& given, int64_t tokens) {
  if (given.empty()) return {{0, tokens}};
  int64_t at = 0;
  for (const Segment& segment : given) {
    check_usage(segment.begin >= at && segment.begin < segment.end && segment.end <= tokens,
                "[evaluate] a segment has the targets {} to {}, expected rising segments from {} to at most {}",
                segment.begin, segment.end, at, tokens);
    at = segment.end;
  }
  return given;
}

}  // namespace alibi::evaluation
