// Learning rate tuning: chooses for each method the rate with the lowest loss on a part of the training text.
#pragma once

#include <vector>

#include "alibi/compare.h"
#include "compare/run.h"

namespace alibi::comparison {

struct Tuning {
  Position method = Position::alibi;
  std::vector<double> rates;  ///< rising
  std::vector<double> nll;    ///< loss of each rate; infinite if the training diverged
  double best() const;
  /// Whether the best rate is the first or the last one, so that a rate beyond it may be better.
  bool is_at_an_end() const;
};

/// Trains the method at each rate on the first nine tenths of the training text, from the first seed and at the
/// shortest training length, and scores the rest (at most 65,536 tokens). Saved trials are not repeated. Returns fewer
/// trials than rates if options.should_stop returns true.
Tuning tune(const RunSetting& setting, Position method, const RunProgress& progress);

}  // namespace alibi::comparison
