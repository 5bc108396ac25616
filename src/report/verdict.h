// The result of a comparison in a few sentences.
#pragma once

#include <string>

#include "alibi/results.h"

namespace alibi::report {

/// Which method is best at the longest length, how the perplexity of each changes from its training length to there,
/// which is best at the training length, which have not learned, and what the intervals are of. Methods that the
/// intervals cannot tell apart are named together. Every number stands in a table of the report, in the same form.
std::string verdict(const CompareResults& results);

}  // namespace alibi::report
