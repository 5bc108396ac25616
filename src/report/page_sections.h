// Parts of the report page that are more than a few lines; each returns HTML.
#pragma once

#include <string>

#include "alibi/results.h"

namespace alibi::report {

/// "Trained at", "Tested up to", ... as a definition list.
std::string facts_section(const CompareResults& results);
/// Rows lengths, columns methods; each perplexity with its ratio to the one at the training length.
std::string perplexity_table(const CompareResults& results);
/// The same in bits per byte, without ratios.
std::string bits_table(const CompareResults& results);
/// How far each method lies above the best one at the training length and at the longest, with intervals.
std::string difference_table(const CompareResults& results);
/// Everything that was measured at each length, folded away.
std::string details_table(const CompareResults& results);
/// Speed and memory of each method.
std::string cost_table(const CompareResults& results);
/// Empty if there were windows that do not overlap alone.
std::string ways_table(const CompareResults& results);
/// Loss of the first and of the last tokens of a window.
std::string position_table(const CompareResults& results);
/// One generated text for each method, with the place marked where it passed the training length.
std::string samples_section(const CompareResults& results);
/// Settings, machine and the command to repeat it.
std::string settings_section(const CompareResults& results);

}  // namespace alibi::report
