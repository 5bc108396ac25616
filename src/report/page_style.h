// The style sheet of the report page.
#pragma once

#include <string>

namespace alibi::report {

/// Colours for light and dark, type and layout; no external resource.
std::string page_style();

}  // namespace alibi::report
