#include "programs.h"

#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <system_error>

#include "core/check.h"
#include "core/files.h"

extern char** environ;

namespace alibi::cli {

std::string installed_program(const std::string& name) {
  std::error_code unknown;
  const std::filesystem::path self = std::filesystem::read_symlink("/proc/self/exe", unknown);
  const std::filesystem::path beside = self.parent_path() / name;
  return !unknown && core::path_exists(beside) ? beside.string() : name;
}

void run_program(const std::vector<std::string>& words, const std::string& operation, const std::string& hint) {
  std::vector<std::string> own = words;
  own.front() = installed_program(own.front());
  std::vector<char*> arguments;
  for (std::string& word : own) arguments.push_back(word.data());
  arguments.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_adddup2(&actions, STDERR_FILENO, STDOUT_FILENO);
  pid_t child = 0;
  const int failed = posix_spawnp(&child, arguments.front(), &actions, nullptr, arguments.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  check(failed == 0, "[{}] cannot start {}: {}; {}", operation, words.front(), std::strerror(failed), hint);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0) check(errno == EINTR, "[{}] {}", operation, std::strerror(errno));
  check(WIFEXITED(status) && WEXITSTATUS(status) == 0, "[{}] '{}' failed with {} {}; its message is above", operation,
        fmt::join(words, " "), WIFEXITED(status) ? "exit code" : "signal",
        WIFEXITED(status) ? WEXITSTATUS(status) : WTERMSIG(status));
}

}  // namespace alibi::cli
