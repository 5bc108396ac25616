// Passes warnings to the program's handler (alibi/warning.h).
#pragma once

#include <string_view>

namespace alibi::core {

/// Calls the handler, if there is one. What it throws is thrown here.
void warn(std::string_view warning);

}  // namespace alibi::core
