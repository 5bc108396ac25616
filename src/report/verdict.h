// The result of a comparison in a few sentences.
#pragma once

#include <string>
#include <vector>

#include "alibi/results.h"

namespace alibi::report {

/// In sentences. Every number also appears in a table of the report, in the same form.
struct Verdict {
  /// Which method is best at the longest length, how far methods answer tasks, and whether training was too short to
  /// tell. Methods that the intervals cannot distinguish are named together.
  std::vector<std::string> answer;
  /// The change of each method's perplexity from the training length to the longest, the best method at the training
  /// length, the methods that have not learned, and the kind of intervals.
  std::vector<std::string> details;
};

Verdict verdict_of(const CompareResults& results);
/// The answer and the details as one text.
std::string verdict(const CompareResults& results);

}  // namespace alibi::report
