// The report page, a single HTML file.
#pragma once

#include <filesystem>
#include <string>

#include "alibi/results.h"

namespace alibi::report {

/// Returns the page: page.html with results.json, the verdict, the figures and the text of the terminal inside. Its
/// script shows everything else. Without scripts the rest is seen. The page refers to no other files.
std::string report_html(const CompareResults& results);

/// Whether the folder contains a report.
bool holds_report(const std::filesystem::path& folder);
/// Writes results.json, figure.svg and report.html into the folder and creates the folder if needed. Throws Error on
/// failure.
void write_report(const CompareResults& results, const std::filesystem::path& folder);

}  // namespace alibi::report
