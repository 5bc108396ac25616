// The result of a comparison in a few sentences.
#pragma once

#include <string>

#include "alibi/results.h"

namespace alibi::report {

/// Names the best method at the longest length and at the training length, the change of each method's perplexity
/// between the two, the methods that have not learned, and the kind of intervals. Methods that the intervals cannot
/// distinguish are named together. Every number also appears in a table of the report, in the same form.
std::string verdict(const CompareResults& results);

}  // namespace alibi::report
