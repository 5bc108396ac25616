// The report page, a single HTML file.
#pragma once

#include <filesystem>
#include <string>

#include "alibi/results.h"

namespace alibi::report {

/// Returns the page: verdict, figures with tables of the same numbers, samples and settings. It contains no scripts and
/// refers to no other files.
std::string report_html(const CompareResults& results);

/// Whether the folder contains a report.
bool holds_report(const std::filesystem::path& folder);
/// Writes results.json, figure.svg and report.html into the folder and creates the folder if needed. Throws Error on
/// failure.
void write_report(const CompareResults& results, const std::filesystem::path& folder);

}  // namespace alibi::report
