#include <fcntl.h>
#include <link.h>
#include <linux/magic.h>
#include <malloc.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/statfs.h>
#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstring>
#include <fstream>
#include <thread>

#include "core/system.h"

namespace alibi::core {

int system::usable_cores() {
  cpu_set_t set;
  if (sched_getaffinity(0, sizeof set, &set) == 0) return std::max(1, CPU_COUNT(&set));
  return std::max(1, static_cast<int>(std::thread::hardware_concurrency()));
}

std::string system::cpu_name() {
  std::ifstream info("/proc/cpuinfo");
  std::string arm;
  for (std::string line; std::getline(info, line);) {
    const size_t colon = line.find(':');
    const size_t value = colon == std::string::npos ? colon : line.find_first_not_of(' ', colon + 1);
    if (value == std::string::npos) continue;
    if (line.starts_with("model name")) return line.substr(value);
    // ARM64 has numbers instead of a name, e.g. 0x41 (Arm) and 0xd40 (Neoverse V1).
    if (line.starts_with("CPU implementer")) arm = "ARM64 CPU, implementer " + line.substr(value);
    if (line.starts_with("CPU part")) return arm + ", part " + line.substr(value);
  }
  return arm;
}

bool system::request_amx() {
#if defined(SYS_arch_prctl)  // x86-64
  constexpr long arch_req_xcomp_perm = 0x1023;
  constexpr long xfeature_xtiledata = 18;
  return syscall(SYS_arch_prctl, arch_req_xcomp_perm, xfeature_xtiledata) == 0;
#else
  return false;
#endif
}

int64_t system::physical_memory() { return sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE); }

bool system::has_memory(size_t bytes) {
  if (bytes == 0) return true;
  void* const room = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED) return false;
  ::munmap(room, bytes);
  return true;
}

#if defined(__GLIBC__)
const size_t system::bytes_of_arena = size_t{128} << 20;
#else
const size_t system::bytes_of_arena = 0;
#endif

void system::ask_for_huge_pages(void* memory, size_t bytes) {
  constexpr size_t huge = size_t{1} << 21;
  const auto begin = (reinterpret_cast<uintptr_t>(memory) + huge - 1) / huge * huge;
  const auto end = (reinterpret_cast<uintptr_t>(memory) + bytes) / huge * huge;
  if (begin < end) madvise(reinterpret_cast<void*>(begin), end - begin, MADV_HUGEPAGE);
}

void system::drop_mapped_pages(const void* begin, size_t bytes) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto first = (reinterpret_cast<uintptr_t>(begin) + page - 1) / page * page;
  const auto end = (reinterpret_cast<uintptr_t>(begin) + bytes) / page * page;
  if (first < end) madvise(reinterpret_cast<void*>(first), end - first, MADV_DONTNEED);
}

int64_t system::peak_resident_bytes() {
  std::ifstream status("/proc/self/status");
  std::string key;
  while (status >> key) {
    if (key == "VmHWM:") {
      int64_t kib = 0;
      status >> kib;
      return kib * 1024;
    }
    status.ignore(4096, '\n');
  }
  return 0;
}

void system::return_free_memory() {
#if defined(__GLIBC__)
  malloc_trim(0);
#endif
}

bool system::reset_peak_resident_bytes() {
  return_free_memory();  // memory freed earlier must not count in this measurement
  std::ofstream clear("/proc/self/clear_refs");
  clear << "5";  // proc(5): resets the peak resident set size
  clear.flush();
  return static_cast<bool>(clear);
}

void system::end_with_parent() { ::prctl(PR_SET_PDEATHSIG, SIGKILL); }

int system::open_unix_socket() { return ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0); }

bool system::open_socket_pair(int (&ends)[2]) {
  return ::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) == 0;
}

bool system::reserve_name(const std::string& name) {
  sockaddr_un address{};  // an abstract name: the zero byte before it says that it is not in the file system
  address.sun_family = AF_UNIX;
  if (name.size() + 1 > sizeof address.sun_path) return true;
  std::memcpy(address.sun_path + 1, name.data(), name.size());
  const int socket = open_unix_socket();
  const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  if (socket < 0 || ::bind(socket, reinterpret_cast<const sockaddr*>(&address), size) == 0) return true;
  const bool is_taken = errno == EADDRINUSE;
  ::close(socket);
  return !is_taken;
}

ssize_t system::send(int socket, const void* data, size_t size) { return ::send(socket, data, size, MSG_NOSIGNAL); }

bool system::is_in_proc(const std::filesystem::path& path) {
  const std::filesystem::path folder = path.has_parent_path() ? path.parent_path() : ".";
  struct statfs info {};
  return ::statfs(folder.c_str(), &info) == 0 && info.f_type == PROC_SUPER_MAGIC;
}

int system::open_inode(const std::filesystem::path& path) { return ::open(path.c_str(), O_PATH | O_CLOEXEC); }

std::vector<std::string> system::loaded_libraries() {
  std::vector<std::string> libraries;
  ::dl_iterate_phdr(
      [](dl_phdr_info* info, size_t, void* names) {
        static_cast<std::vector<std::string>*>(names)->emplace_back(info->dlpi_name);
        return 0;
      },
      &libraries);
  return libraries;
}

}  // namespace alibi::core
