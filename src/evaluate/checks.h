// The targets of an evaluation, and checks of its inputs and of the values that a model computes.
#pragma once

#include <fmt/format.h>

#include <cmath>
#include <cstdint>
#include <vector>

#include "alibi/evaluate.h"
#include "core/check.h"

namespace alibi::evaluation {

/// Throws NotFiniteError if `value` is infinite or NaN. The message names it as `what` number `index`, counted from 0.
inline void check_finite(const char* operation, float value, const char* what, int64_t index) {
  if (std::isfinite(value)) [[likely]]
    return;
  throw NotFiniteError(
      fmt::format("[{}] the {} {} is {}, expected a finite number: the model overflows because its weights are too "
                  "large, or because a cache of type q8_0 holds only keys and values below 8.32 million (--cache-type "
                  "bf16 holds them)",
                  operation, what, index, value));
}

/// The targets of a stream to score: the given segments, or the whole stream if none are given. Throws UsageError if
/// segments overlap, are not in rising order or exceed the stream.
inline std::vector<Segment> segments_to_score(const std::vector<Segment>& given, int64_t tokens) {
  if (given.empty()) return {{0, tokens}};
  int64_t at = 0;
  for (const Segment& segment : given) {
    check_usage(segment.begin >= at && segment.begin < segment.end && segment.end <= tokens,
                "[evaluate] a segment has the targets {} to {}, expected rising segments that start at {} or later "
                "and end at {} or earlier",
                segment.begin, segment.end, at, tokens);
    at = segment.end;
  }
  return given;
}

inline int64_t size_of(const std::vector<Segment>& segments) {
  int64_t size = 0;
  for (const Segment& segment : segments) size += segment.size();
  return size;
}

/// Segments of these sizes within [first, end), spread evenly.
std::vector<Segment> spread(const std::vector<int64_t>& sizes, int64_t first, int64_t end);

/// Blocks of `longest` tokens (the last one may be shorter) with `wanted` tokens in total, spread evenly over the
/// stream and so over all files. If the stream has fewer tokens, the blocks cover all of it. Every --eval-tokens means
/// this.
std::vector<Segment> spread_blocks(int64_t stream, int64_t wanted, int64_t longest);

}  // namespace alibi::evaluation
