// A figure of attention weight against distance: a small panel for each head, with the weight that its slope alone
// would give.
#pragma once

#include <string>

#include "alibi/results.h"
#include "report/theme.h"

namespace alibi::report {

/// Returns the SVG element in the method's colour, or "" if `map` has no measurements. Rows are layers and columns are
/// heads. Both axes are logarithmic and the same in all panels. If there are more than eight layers or heads, eight
/// evenly spaced ones are drawn. With `heading` the figure has a title and a background, for a separate file.
std::string draw_attention(const AttentionMap& map, const std::string& method, const Theme& theme, bool heading);

}  // namespace alibi::report
