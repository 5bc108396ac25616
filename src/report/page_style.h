// The style sheet of the report page.
#pragma once

#include <string>
#include <vector>

namespace alibi::report {

/// Colours of these methods and of others for light and dark screens, fonts and layout. It refers to no other files.
std::string page_style(const std::vector<std::string>& methods);

}  // namespace alibi::report
