// Suggestions for names that do not exist.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace alibi::cli {

/// The one of `names` that is meant by `word`, or "": the name that other programs of the field call `word`, one that
/// begins or ends with `word`, or one of which `word` is a misspelling. Dashes in front are ignored.
std::string suggested(const std::string& word, const std::vector<std::string>& names);
/// "; did you mean 'NAME'?", or "" without a suggestion.
std::string did_you_mean(const std::string& suggestion);

}  // namespace alibi::cli
