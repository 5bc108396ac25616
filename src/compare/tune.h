// The learning rate of each method: the one with the lowest loss on a part of the training text.
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
  /// The best rate is the first or the last one, so a rate beyond may be better.
  bool is_at_an_end() const;
};

/// Trains the method at each rate, from the first seed and at the shortest training length, on the first nine tenths of
/// the training text, and scores the rest of it (at most 65,536 tokens). Saved trials are not repeated.
/// Returns fewer trials than rates if options.should_stop says so.
Tuning tune(const RunSetting& setting, Position method, const RunProgress& progress);

}  // namespace alibi::comparison
