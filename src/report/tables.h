// The tables of a comparison.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "alibi/results.h"
#include "report/summary.h"
#include "report/table.h"

namespace alibi::report {

/// One row per length, one column per method: each perplexity with its change since the method's training length.
Table perplexity_table(const CompareResults& results);
/// The same layout in bits per byte, without changes.
Table bits_table(const CompareResults& results);
/// Difference of each method from the best one at each of the lengths, with intervals.
Table difference_table(const CompareResults& results, const std::vector<int64_t>& lengths);
/// Perplexity and speed of each kind of evaluation of the same text.
Table ways_table(const CompareResults& results, const std::vector<WayToRead>& ways);
/// Speed measured in rounds after the runs, or during the runs if there were no rounds.
Table speed_table(const CompareResults& results);
/// Time, floating-point operations and memory of each method.
Table cost_table(const CompareResults& results);

/// The comparison as plain ASCII for the terminal: tables, notes, verdict. Ends with a line end.
std::string comparison_text(const CompareResults& results);

}  // namespace alibi::report
