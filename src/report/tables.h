// The tables of a comparison.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "alibi/results.h"
#include "report/summary.h"
#include "report/table.h"

namespace alibi::report {

/// Rows lengths, columns methods; each perplexity with its change since the method's training length.
Table perplexity_table(const CompareResults& results);
/// The same in bits per byte, without changes.
Table bits_table(const CompareResults& results);
/// How far each method lies from the best one at each of the lengths, with intervals.
Table difference_table(const CompareResults& results, const std::vector<int64_t>& lengths);
/// Everything that was measured at each length.
Table details_table(const CompareResults& results);
/// Perplexity and speed of each way to read the same text.
Table ways_table(const CompareResults& results, const std::vector<WayToRead>& ways);
/// Measured in rounds after the runs, or else while they were evaluated.
Table speed_table(const CompareResults& results);
/// Time, arithmetic and memory of each method.
Table cost_table(const CompareResults& results);
/// Loss of the first and of the last tokens of a window.
Table position_table(const CompareResults& results);

/// The comparison for the terminal: tables, then notes, then the verdict. Ends with a line end; plain ASCII.
std::string comparison_text(const CompareResults& results);

}  // namespace alibi::report
