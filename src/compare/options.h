// The options of a comparison: what is not given, and what cannot be.
#pragma once

#include "alibi/compare.h"

namespace alibi::comparison {

/// Fills in the defaults that depend on other options, and sorts the lengths. Throws Error for invalid options.
void complete_options(CompareOptions& options);

/// Without a text, a comparison has tasks only, or uses the default corpus: without tasks, or with a share of them.
bool has_text(const CompareOptions& options);

}  // namespace alibi::comparison
