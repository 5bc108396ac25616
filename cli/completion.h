// Shell scripts that complete commands, options, their values, and files.
#pragma once

#include <string>

#include "outline.h"

namespace alibi::cli {

std::string bash_completion(const CommandOutline& program);
std::string zsh_completion(const CommandOutline& program);
std::string fish_completion(const CommandOutline& program);

}  // namespace alibi::cli
