// The options of a comparison: what is not given, and what cannot be.
#pragma once

#include <string>
#include <vector>

#include "alibi/compare.h"

namespace alibi::comparison {

/// The names of the methods, separated by commas.
std::string names_of(const std::vector<Position>& methods);

/// Fills in the defaults that depend on other options, and sorts the lengths. Throws Error for invalid options.
void complete_options(CompareOptions& options);

/// Without a text, a comparison has tasks only, or uses the default corpus: without tasks, or with a share of them.
bool has_text(const CompareOptions& options);

}  // namespace alibi::comparison
