// How much a process has read, so that a test can tell whether a large file was opened without reading it.
#pragma once

#include <unistd.h>

#include <cstdint>
#include <fstream>
#include <string>

namespace alibi::test {

/// Bytes of this process that are in memory, with those of mapped files, and all bytes that it has read from files so
/// far. 0 on systems other than Linux.
inline int64_t bytes_touched() {
  int64_t virtual_pages = 0, resident_pages = 0, read = 0;
  std::ifstream("/proc/self/statm") >> virtual_pages >> resident_pages;
  std::string name;
  std::ifstream("/proc/self/io") >> name >> read;  // rchar: N
  return resident_pages * sysconf(_SC_PAGESIZE) + read;
}

}  // namespace alibi::test
