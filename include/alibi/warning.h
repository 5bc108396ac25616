// Warnings of the library: what it did is right, but a user should know of it.
#pragma once

#include <functional>
#include <string_view>

#include "alibi/export.h"

namespace alibi {

/// Sets the function that receives warnings, such as that a model's file contradicts itself. It may be called from any
/// thread, by several at a time. Without one, or with an empty function, warnings are dropped: the library prints
/// nothing. The command prints them on standard error, and the Python package passes them to `warnings.warn`.
ALIBI_API void set_warning_handler(std::function<void(std::string_view warning)> handler);

}  // namespace alibi
