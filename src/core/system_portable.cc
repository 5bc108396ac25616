#include <fcntl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <limits>
#include <thread>

#include "core/system.h"

namespace alibi::core {
namespace {

/// Closes the socket in exec(). Between the two calls another thread may call exec(), which POSIX cannot prevent.
/// Without MSG_NOSIGNAL, macOS has an option of the socket.
void prepare(int socket) {
  ::fcntl(socket, F_SETFD, FD_CLOEXEC);
#if defined(SO_NOSIGPIPE)
  const int on = 1;
  ::setsockopt(socket, SOL_SOCKET, SO_NOSIGPIPE, &on, sizeof on);
#endif
}

}  // namespace

int system::usable_cores() { return std::max(1, static_cast<int>(std::thread::hardware_concurrency())); }

std::string system::cpu_name() { return ""; }

bool system::request_amx() { return false; }

int64_t system::physical_memory() {
#if defined(_SC_PHYS_PAGES)
  return sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
#else
  return std::numeric_limits<int64_t>::max();
#endif
}

bool system::has_memory(size_t) { return true; }

const size_t system::bytes_of_arena = 0;

void system::ask_for_huge_pages(void*, size_t) {}

void system::drop_mapped_pages(const void*, size_t) {}

void system::return_free_memory() {}

int64_t system::peak_resident_bytes() {
  struct rusage usage {};
  if (::getrusage(RUSAGE_SELF, &usage) != 0) return 0;
#if defined(__APPLE__)
  return usage.ru_maxrss;  // bytes
#else
  return usage.ru_maxrss * 1024;
#endif
}

bool system::reset_peak_resident_bytes() { return false; }

void system::end_with_parent() {}

int system::open_unix_socket() {
  const int socket = ::socket(AF_UNIX, SOCK_STREAM, 0);
  if (socket >= 0) prepare(socket);
  return socket;
}

bool system::reserve_name(const std::string&) { return true; }

bool system::open_socket_pair(int (&ends)[2]) {
  if (::socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) return false;
  for (const int end : ends) prepare(end);
  return true;
}

ssize_t system::send(int socket, const void* data, size_t size) {
#if defined(MSG_NOSIGNAL)
  return ::send(socket, data, size, MSG_NOSIGNAL);
#else
  return ::send(socket, data, size, 0);
#endif
}

bool system::is_in_proc(const std::filesystem::path&) { return false; }

int system::open_inode(const std::filesystem::path& path) {
  return ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
}

std::vector<std::string> system::loaded_libraries() { return {""}; }

}  // namespace alibi::core
