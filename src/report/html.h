// The report: one page without external files.
#pragma once

#include <filesystem>
#include <string>

#include "alibi/results.h"

namespace alibi::report {

/// The page: verdict, figures with tables of the same numbers, samples, settings. No scripts, no external resources.
std::string report_html(const CompareResults& results);

/// Whether the folder has a report.
bool holds_report(const std::filesystem::path& folder);
/// Writes results.json, figure.svg and report.html into the folder, which is made if it is not there.
/// Throws Error if that fails.
void write_report(const CompareResults& results, const std::filesystem::path& folder);

}  // namespace alibi::report
