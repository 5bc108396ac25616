// Merging comparisons of other methods, seeds or training lengths on the same text.
#pragma once

#include <string>
#include <vector>

#include "alibi/results.h"

namespace alibi::report {

struct NamedResults {
  std::string name;  ///< for messages
  CompareResults results;
  std::string label = {};  ///< not empty: its methods are called "METHOD, LABEL", so that they stand beside the others
};

/// Results with the runs of all parts. Settings that differ are listed by part. Throws Error if they were not scored on
/// the same tokens, or if two have a run of the same method, length and seed with other results.
CompareResults merge(const std::vector<NamedResults>& parts);

}  // namespace alibi::report
