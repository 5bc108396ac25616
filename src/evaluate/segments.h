// Which targets of a stream are scored.
#pragma once

#include <cstdint>
#include <vector>

#include "alibi/evaluate.h"
#include "core/check.h"

namespace alibi::evaluation {

/// Those asked for, or one that is the whole stream. Throws UsageError if they overlap or leave it.
inline std::vector<Segment> segments_to_score(const std::vector<Segment>& asked, int64_t tokens) {
  if (asked.empty()) return {{0, tokens}};
  int64_t at = 0;
  for (const Segment& segment : asked) {
    check_usage(segment.begin >= at && segment.begin < segment.end && segment.end <= tokens,
                "[evaluate] a segment of the targets {} to {} behind {}, expected some that rise within the {} tokens",
                segment.begin, segment.end, at, tokens);
    at = segment.end;
  }
  return asked;
}

}  // namespace alibi::evaluation
