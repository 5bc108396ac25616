// A learning rate for each method: the one with the lowest loss on text that is carved out of the training text.
#pragma once

#include <vector>

#include "alibi/compare.h"
#include "compare/run.h"

namespace alibi::comparison {

struct Tuning {
  Position method = Position::alibi;
  std::vector<double> rates;  ///< rising
  std::vector<double> nll;    ///< of each; infinite where training broke
  double best() const;
  /// The best rate may lie beyond those that were tried.
  bool is_at_an_end() const;
};

/// Trains the method at each rate, from the first seed and at the shortest training length, on the first nine tenths of
/// the training text, and scores the rest of it (at most 65,536 tokens). Trials that are kept are not done again.
/// Returns fewer trials than rates if options.should_stop says so.
Tuning tune(const RunSetting& setting, Position method, const RunProgress& progress);

}  // namespace alibi::comparison
