// A comparison as text for the terminal.
#pragma once

#include <string>

#include "alibi/results.h"

namespace alibi::report {

/// Perplexity and bits per byte (rows: lengths, columns: methods, the best of a row marked), then speed and memory of
/// each method, then the reasons for gaps. Ends with a line end; plain ASCII.
std::string comparison_table(const CompareResults& results);

}  // namespace alibi::report
