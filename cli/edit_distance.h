// Suggestions for misspelt names.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace alibi::cli {

/// The one of `names` that takes the fewest insertions, deletions and replacements of letters to turn `word` into
/// (Levenshtein's distance); the first of several. Names that begin with `word` come first. `names` must not be empty.
std::string nearest(std::string_view word, const std::vector<std::string>& names);

}  // namespace alibi::cli
