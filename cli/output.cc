#include "output.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <system_error>
#include <thread>
#include <vector>

#include "core/check.h"
#include "core/files.h"
#include "core/locks.h"
#include "places.h"
#include "report/markup.h"

namespace alibi::cli {
namespace {

int failure = 0;                 // errno of the first failed write
std::string standard_output_is;  // the option whose file is standard output
const ranks::Group* speaker = nullptr;

bool is_silent() { return speaker != nullptr && speaker->rank() != 0; }

void note(bool written) {
  if (!written && failure == 0) failure = errno == 0 ? EIO : errno;
}

void report(const char* kind, std::string_view message) {
  constexpr size_t most = 4000;  // a file may have put a long text into the message
  std::string text = report::visible_text(message.substr(0, most));
  if (message.size() > most) text += " ...";
  text = fmt::format("alibi: {}: {}\n", kind, text);
  std::fwrite(text.data(), 1, text.size(), stderr);
}

}  // namespace

void reserve_standard_files() {
  for (const int descriptor : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (::fcntl(descriptor, F_GETFD) >= 0) continue;
    // open() returns the lowest free number, which is this one.
    [[maybe_unused]] const int opened = ::open("/dev/null", descriptor == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
}

void speak_as_rank(const ranks::Group& group) { speaker = &group; }

void say_text(std::string_view text) {
  if (is_silent()) return;
  errno = 0;
  if (standard_output_is.empty()) {
    note(std::fwrite(text.data(), 1, text.size(), stdout) == text.size());
  } else {
    std::fwrite(text.data(), 1, text.size(), stderr);
  }
}

void say_progress(std::string_view line) {
  if (!is_silent()) std::fwrite(fmt::format("{}\n", line).c_str(), 1, line.size() + 1, stderr);
}

void flush_output() {
  errno = 0;
  note(std::fflush(stdout) == 0);
}

void check_output() {
  check(failure == 0, "[output] standard output cannot be written: {}",
        failure == EBADF ? "it is closed" : std::generic_category().message(failure));
}

void finish_output() {
  flush_output();
  errno = 0;
  note(std::fclose(stdout) == 0);  // some file systems report errors only here
  check_output();
}

std::filesystem::path output_file(const std::string& name, const char* option) {
  const std::filesystem::path path = name == "-" ? "/dev/stdout" : name;
  if (core::descriptor_of(path) == STDOUT_FILENO) {
    check_usage(standard_output_is.empty() || standard_output_is == option,
                "[{}] {} is standard output, but {} is also written there; choose another file for one of them", option,
                name, standard_output_is);
    flush_output();
    standard_output_is = option;
  }
  core::check_output_file(path);
  add_outputs({path}, option);
  core::hold_file(path);
  return path;
}

void check_output_folder(const std::string& name, const char* option, const std::set<std::string>& names) {
  check_usage(name != "-", "[{}] found '-', which is standard output, expected the name of a folder", option);
  std::vector<std::filesystem::path> paths;
  for (const std::string& below : names) paths.push_back(std::filesystem::path(name) / below);
  add_outputs(paths, option);
}

void hold_output_folder(const std::string& name) {
  core::make_folder(name);
  if (!is_silent()) core::hold_folder(name);
}

void report_error(std::string_view message) {
  if (speaker == nullptr) return report("error", message);
  constexpr std::chrono::seconds moment(2);
  if (is_silent()) std::this_thread::sleep_for(moment);
  report("error", fmt::format("{}: {}{}", speaker->name_of(speaker->rank()), message, speaker->advice()));
}

void report_warning(std::string_view message) {
  if (!is_silent()) report("warning", message);
}

}  // namespace alibi::cli
