// Merges comparisons of different methods, seeds or training lengths on the same text.
#pragma once

#include <string>
#include <vector>

#include "alibi/results.h"

namespace alibi::report {

struct NamedResults {
  std::string name;  ///< used in error messages
  CompareResults results;
  std::string label =
      {};  ///< if not empty, the methods are renamed "METHOD, LABEL" to distinguish them from those of other parts
};

/// Returns results with the runs of all parts. Settings that differ are listed by part. Throws Error if the parts did
/// not score the same tokens, or if two parts have different results for the same method, length and seed.
CompareResults merge(const std::vector<NamedResults>& parts);

}  // namespace alibi::report
