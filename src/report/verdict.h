// What the comparison showed, in a few sentences.
#pragma once

#include <string>

#include "alibi/results.h"

namespace alibi::report {

/// Plain sentences: which method is best at the longest length, how each moved from its training length to there, which
/// is best at the training length, and what the intervals are of. They claim what the intervals carry: methods that
/// cannot be told apart are named together. Numbers are those of this run, and nothing beyond them is claimed.
std::string verdict(const CompareResults& results);

}  // namespace alibi::report
