// A process that is killed between two changes of the file system, whichever two.
#pragma once

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdint>
#include <exception>

#include "alibi/error.h"

namespace alibi::test {

enum class ChildEnd { killed, done, cannot_trace };

/// System calls after which a folder or a file is another. (Opening a new file leaves it empty: as before its first
/// write.)
inline bool changes_files(uint64_t call) {
  constexpr std::array calls = {
#ifdef SYS_rename  // newer machines have the calls with "at" alone
      SYS_mkdir,    SYS_rename,    SYS_link,   SYS_unlink,   SYS_rmdir,
#endif
#ifdef SYS_renameat
      SYS_renameat,
#endif
      SYS_mkdirat,  SYS_renameat2, SYS_linkat, SYS_unlinkat, SYS_write, SYS_pwrite64, SYS_ftruncate};
  for (const long one : calls) {
    if (static_cast<uint64_t>(one) == call) return true;
  }
  return false;
}

/// Runs the body in a child, which is killed just before it makes its change number `change`, counted from 0.
template <class Body>
ChildEnd run_killed(int change, const Body& body) {
  const pid_t child = ::fork();
  if (child < 0) throw Error("cannot fork");
  if (child == 0) {
    if (::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) ::_exit(3);
    ::raise(SIGSTOP);
    try {
      body();
    } catch (const std::exception&) {
      ::_exit(2);
    }
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  if (!WIFSTOPPED(status)) return ChildEnd::cannot_trace;
  ::ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
  for (bool killed = false;;) {
    ::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
    ::waitpid(child, &status, 0);
    if (WIFSIGNALED(status)) return killed ? ChildEnd::killed : throw Error("the child died of a signal of its own");
    if (WIFEXITED(status)) {
      const int code = WEXITSTATUS(status);
      return code == 0 ? ChildEnd::done : throw Error("the child failed with " + std::to_string(code));
    }
    __ptrace_syscall_info info{};
    const long size = ::ptrace(PTRACE_GET_SYSCALL_INFO, child, sizeof info, &info);
    if (size <= 0) {
      ::kill(child, SIGKILL);
      ::waitpid(child, &status, 0);
      return ChildEnd::cannot_trace;
    }
    if (info.op != PTRACE_SYSCALL_INFO_ENTRY || !changes_files(info.entry.nr) || change-- != 0) continue;
    ::kill(child, SIGKILL);
    killed = true;
  }
}

}  // namespace alibi::test
