// What the command writes: text for people, and files that may be standard output.
#pragma once

#include <fmt/format.h>

#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

namespace alibi::cli {

/// Standard input, output and error that are closed become files that can be neither read nor written: what is opened
/// later must not be taken for one of them. To be called first of all.
void reserve_standard_files();

/// Text for people: to standard output, or to standard error once a file is written to standard output. That it cannot
/// be written is reported by finish_output(): the work continues, because it may write files that matter more.
void say_text(std::string_view text);
void flush_output();
template <class... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  say_text(fmt::format(format, std::forward<Args>(args)...));
}
/// Throws Error if something that was said could not be written.
void check_output();
/// The same when all is said.
void finish_output();

/// Where to write a file that an option names: "-" is standard output. Makes sure that this is possible, as far as that
/// can be told before there is something to write. Throws UsageError if standard output is taken by another option.
std::filesystem::path output_file(const std::string& name, const char* option);

/// An option names a folder to write: "-" is none.
void check_output_folder(const std::string& name, const char* option);

/// "alibi: error: MESSAGE" on standard error. What a terminal would obey in it is shown as an escape.
void report_error(std::string_view message);
void report_warning(std::string_view message);

}  // namespace alibi::cli
