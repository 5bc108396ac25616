// The page at /, where people try the model. CMake makes it from page.html.
#pragma once

#include <string_view>

namespace alibi::serve {

/// HTML with its style and its program, without other files.
std::string_view page();

}  // namespace alibi::serve
