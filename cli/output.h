// Output of the commands: text for people, and files, which may be standard output.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <set>
#include <string>
#include <string_view>
#include <utility>

#include "ranks/group.h"

namespace alibi::cli {

/// Replaces standard input, output and error, if they are closed, by files that can be neither read nor written.
/// Otherwise a file opened later would take their number. Call it before anything else.
void reserve_standard_files();

/// From now on only rank 0 prints text for people and warnings. Errors name the rank, and end with the group's advice.
/// A rank other than 0 waits a moment before it reports an error, because rank 0 may be about to report the same one.
/// Keeps the reference.
void speak_as_rank(const ranks::Group& group);

/// Prints text for people to standard output, or to standard error if standard output is used for a file. A failed
/// write does not stop the work, which may write more important files. finish_output() reports it.
void say_text(std::string_view text);
/// Prints a progress line to standard error.
void say_progress(std::string_view line);
void flush_output();
template <class... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  say_text(fmt::format(format, std::forward<Args>(args)...));
}
/// Throws Error if a text could not be written.
void check_output();
/// Like check_output(), after all output. Also flushes it.
void finish_output();

/// The target of a file option: "-" is standard output. Checks that the file can be written, as far as this can be
/// determined in advance, and reserves it for this process. Throws UsageError if the command reads this file, or if
/// another option already writes to it.
std::filesystem::path output_file(const std::string& name, const char* option);

/// Checks an option that names an output folder. `names` are the files in it that the command replaces, and the folders
/// in it that belong to the command. Throws UsageError for "-", and if the command reads one of the files.
void check_output_folder(const std::string& name, const char* option, const std::set<std::string>& names);
/// Creates the folder, and locks it for the rest of the process. Throws Error if another process holds the lock.
void hold_output_folder(const std::string& name);

/// Prints "alibi: error: MESSAGE" to standard error. Control characters are shown as escapes.
void report_error(std::string_view message);
void report_warning(std::string_view message);

}  // namespace alibi::cli
