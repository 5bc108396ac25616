// Other programs that the command starts.
#pragma once

#include <string>
#include <vector>

namespace alibi::cli {

/// The program of this name beside this command, where pip puts both, or else the name, which is looked up in PATH.
std::string installed_program(const std::string& name);

/// Runs a program until it ends. Its output goes to standard error. Throws Error, which begins with `operation`, if the
/// program cannot be started (the message has `hint`) or fails.
void run_program(const std::vector<std::string>& words, const std::string& operation, const std::string& hint);

}  // namespace alibi::cli
