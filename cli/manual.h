// The manual page, alibi(1).
#pragma once

#include <string>

#include "outline.h"

namespace alibi::cli {

/// In the language of man pages (roff).
std::string manual_page(const CommandOutline& program);

}  // namespace alibi::cli
