// The style sheet of the report page.
#pragma once

#include <string>

namespace alibi::report {

/// Colours for light and dark screens, fonts and layout. It refers to no other files.
std::string page_style();

}  // namespace alibi::report
