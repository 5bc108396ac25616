// Attention weight against distance, a small panel for each head, beside what its slope alone would give.
#pragma once

#include <string>

#include "alibi/results.h"
#include "report/theme.h"

namespace alibi::report {

/// The SVG element: rows are layers, columns heads; both axes logarithmic and the same in all panels. Of more than
/// eight layers or heads, eight are drawn, evenly chosen. `heading`: with title and a ground, for a file of its own.
/// Empty if nothing was measured.
std::string draw_attention(const AttentionMap& map, const Theme& theme, bool heading);

}  // namespace alibi::report
