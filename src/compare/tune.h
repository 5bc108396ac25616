// Learning rate tuning: chooses for each method, and for each task, the rate with the lowest loss on new tokens.
#pragma once

#include <string>
#include <vector>

#include "alibi/compare.h"
#include "compare/run.h"
#include "compare/task_run.h"

namespace alibi::comparison {

struct Tuning {
  Position method = Position::alibi;
  std::string task;           ///< empty: text
  std::vector<double> rates;  ///< rising
  std::vector<double> nll;    ///< loss of each rate; infinite if the training diverged
  double best() const;
  /// Whether the best rate is the first or the last one, so that a rate beyond it may be better.
  bool is_at_an_end() const;
};

/// Trains the method at each rate from the first seed at the shortest training length. On text: on the first nine
/// tenths of the training text, and scores the rest (at most 65,536 tokens). On a task: as its runs do, and takes the
/// loss of the last tenth of the updates, whose sequences are new to the model. Saved trials are not repeated. Returns
/// fewer trials than rates if options.should_stop returns true.
Tuning tune(const RunSetting& setting, const TaskFillers& fillers, Position method, const std::string& task,
            const RunProgress& progress);

}  // namespace alibi::comparison
