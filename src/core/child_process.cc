#include "core/child_process.h"

#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>

#include <algorithm>
#include <csignal>
#include <cstdint>
#include <cstring>
#include <exception>
#include <new>

#include "core/check.h"
#include "core/interrupt.h"
#include "core/system.h"

namespace alibi::core {
namespace {

// Exit codes of the child.
constexpr int kDone = 0, kNoMemory = 3, kRefused = 4, kFailed = 5;

/// Exit code for the exception that is being handled.
int exit_code() {
  try {
    throw;
  } catch (const std::bad_alloc&) {
    return kNoMemory;
  } catch (const std::system_error&) {  // no thread could be created
    return kRefused;
  } catch (...) {
    return kFailed;
  }
}

[[noreturn]] void run_child(const std::function<void(const Channel&)>& body, const Channel& channel, pid_t parent) {
  system::end_with_parent();
  if (::getppid() != parent) ::_exit(kFailed);
  for (const int signal : {SIGINT, SIGQUIT, SIGHUP, SIGTERM}) std::signal(signal, SIG_IGN);
  // Handles an exception in another thread of the body without abort(), which would write to standard error.
  const NoInterrupts of_the_parent;
  std::set_terminate([] { ::_exit(std::current_exception() ? exit_code() : kFailed); });
  try {
    body(channel);
  } catch (...) {
    ::_exit(exit_code());
  }
  ::_exit(kDone);
}

bool send_all(int socket, const char* data, size_t size) {
  while (size > 0) {
    const ssize_t sent = system::send(socket, data, size);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    data += sent;
    size -= static_cast<size_t>(sent);
  }
  return true;
}

bool receive_all(int socket, char* data, size_t size) {
  while (size > 0) {
    pollfd readable{.fd = socket, .events = POLLIN, .revents = 0};
    check_interrupt();
    if (::poll(&readable, 1, next_interrupt_check() ? 50 : -1) <= 0) continue;
    const ssize_t got = ::recv(socket, data, size, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return false;
    data += got;
    size -= static_cast<size_t>(got);
  }
  return true;
}

}  // namespace

bool Channel::send(std::string_view message) const {
  const uint64_t size = message.size();
  return send_all(socket_.get(), reinterpret_cast<const char*>(&size), sizeof size) &&
         send_all(socket_.get(), message.data(), message.size());
}

std::optional<std::string> Channel::receive() const {
  uint64_t size = 0;
  if (!receive_all(socket_.get(), reinterpret_cast<char*>(&size), sizeof size)) return std::nullopt;
  std::string message(size, '\0');
  if (!receive_all(socket_.get(), message.data(), message.size())) return std::nullopt;
  return message;
}

ChildProcess::ChildProcess(const char* operation, const std::function<void(const Channel&)>& body)
    : operation_(operation) {
  int ends[2] = {-1, -1};
  const auto check_system = [&](bool ok) {
    if (!ok) {
      fail("[{}] the system refused to create a process ({})", operation, std::generic_category().message(errno));
    }
  };
  check_system(system::open_socket_pair(ends));
  channel_.emplace(Descriptor(ends[0]));
  const Channel of_child{Descriptor(ends[1])};
  const pid_t parent = ::getpid();
  child_ = ::fork();
  if (child_ == 0) {
    channel_.reset();
    run_child(body, of_child, parent);
  }
  check_system(child_ > 0);
}

ChildProcess::~ChildProcess() {
  if (child_ <= 0) return;
  ::kill(child_, SIGKILL);
  while (::waitpid(child_, nullptr, 0) < 0 && errno == EINTR) {
  }
}

void ChildProcess::fail_ended(const char* when) {
  int status = 0;
  pid_t waited = -1;
  do {
    waited = ::waitpid(child_, &status, 0);
  } while (waited < 0 && errno == EINTR);
  child_ = -1;
  const int code = waited > 0 && WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  const int signal = waited > 0 && WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  // The system kills processes by SIGKILL when memory runs out, and some libraries call abort().
  check(code != kNoMemory && signal != SIGKILL && signal != SIGABRT, "[{}] out of memory {}", operation_, when);
  check(code != kRefused, "[{}] the system refused to create a thread {}", operation_, when);
  fail("[{}] the process ended with {} {} {}", operation_, signal != 0 ? "signal" : "exit code",
       signal != 0 ? signal : code, when);
}

}  // namespace alibi::core
