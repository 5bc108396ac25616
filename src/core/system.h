// What only one operating system has. system_linux.cc has Linux's functions. system_portable.cc has POSIX's, which do
// less, for other systems; CMake chooses one of them (ALIBI_SYSTEM).
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace alibi::core::system {

/// The number of cores that this process may use.
int usable_cores();
/// "AMD EPYC 9R14"; empty if it is unknown.
std::string cpu_name();

/// Requests AMX's tile registers, which Linux gives only to processes that do so. False if they are not given.
bool request_amx();

/// Bytes of the machine's memory.
int64_t physical_memory();
/// Whether the process can get this much more memory. True if the system does not tell.
bool has_memory(size_t bytes);
/// When a thread allocates for the first time, the C library takes this much address space.
extern const size_t bytes_of_arena;
/// A hint for memory that is large and rarely read, where page tables would cost more time than the memory itself.
void ask_for_huge_pages(void* memory, size_t bytes);
/// A hint that these bytes of a read-only map of a file are not read again soon: their whole pages leave the process's
/// resident memory, and reading them again reads the file again.
void drop_mapped_pages(const void* begin, size_t bytes);
/// Gives memory that was freed, and that the C library keeps, back to the system.
void return_free_memory();
/// Peak resident memory of the process since the last reset; 0 if it cannot be read.
int64_t peak_resident_bytes();
/// False if the system cannot reset it.
bool reset_peak_resident_bytes();

/// Ends this process by SIGKILL when its parent ends. A system that cannot do so leaves the child running.
void end_with_parent();
/// Sockets that are closed by exec(); -1 or false, with errno, if there is none.
int open_unix_socket();
bool open_socket_pair(int (&ends)[2]);
/// Reserves a name until the process ends. False if another process of this machine has reserved it. A system without
/// such names returns true.
bool reserve_name(const std::string& name);
/// As ::send(), but an error instead of SIGPIPE if the other end is closed. The socket is from a function above.
ssize_t send(int socket, const void* data, size_t size);

/// Whether the path is in /proc, whose entries look like links, but reading a link returns a description of the open
/// file instead of its path.
bool is_in_proc(const std::filesystem::path& path);
/// A descriptor of the file itself; opening neither blocks nor changes anything. -1 if it cannot be opened.
int open_inode(const std::filesystem::path& path);

/// The paths of the shared libraries that the process has loaded; an empty one is the program.
std::vector<std::string> loaded_libraries();

}  // namespace alibi::core::system
