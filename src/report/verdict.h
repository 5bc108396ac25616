// What the comparison showed, in one sentence.
#pragma once

#include <string>

#include "alibi/results.h"

namespace alibi {

/// One plain sentence about how perplexity moved from the training length to the longest length measured. It repeats
/// numbers of this run and claims nothing beyond them.
std::string verdict(const CompareResults& results);

}  // namespace alibi
