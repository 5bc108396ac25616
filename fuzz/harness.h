// What the targets are made of.
#pragma once

#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <string_view>

namespace alibi::fuzz {

/// Calls `read` and returns whether it ended without Error. Ends the process if anything else was thrown, if the error
/// blames the caller (UsageError) or does not name `path`, or if more memory was held meanwhile than an input of this
/// size may cost.
bool takes(std::string_view input, const std::filesystem::path& path, const std::function<void()>& read);

/// Ends the process if something does not hold that must hold whatever the input is.
void demand(bool holds, std::string_view what);

/// An input of several kinds: its first byte says which, the rest is what lies on disk.
struct Choice {
  unsigned kind = 0;  ///< below `kinds`
  std::string_view content;
};
Choice choose(std::string_view input, unsigned kinds);
std::string chosen(unsigned kind, std::string_view content);

/// The files of a folder, by their paths in it.
using Files = std::map<std::string, std::string>;
Files files_of(const std::filesystem::path& folder);
void write_file(const std::filesystem::path& path, std::string_view content);
void write_files(const std::filesystem::path& folder, const Files& files);

}  // namespace alibi::fuzz
