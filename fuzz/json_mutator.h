// Changes JSON so that it stays JSON.
#pragma once

#include <string>
#include <string_view>

namespace alibi::fuzz {

/// The text with one of its strings, numbers or words replaced, doubled or taken out; the text as it is if there are
/// none. What stands before the first brace is left alone. The same seed gives the same change.
std::string mutate_json(std::string_view text, unsigned seed);

}  // namespace alibi::fuzz
