// What a command reads and what it writes. No output may replace an input, and no two outputs may have the same place.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace alibi::cli {

/// Adds a file or a folder that an option names for reading; "-" is standard input. Throws UsageError if an output of
/// this command would replace it or a file in it. A path that does not exist is ignored.
void add_input(const std::string& path, const std::string& option);

/// Adds files, or folders with everything in them, that the command writes or removes on behalf of an option. Throws
/// UsageError if one of them is an input or an earlier output. Files are compared by device and inode, so links make no
/// difference.
void add_outputs(const std::vector<std::filesystem::path>& paths, const std::string& option);

}  // namespace alibi::cli
