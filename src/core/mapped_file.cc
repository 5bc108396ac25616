// Memory maps that survive the truncation of their file: missing pages are replaced by zeros, and the map is marked.
#include <sys/mman.h>

#include <atomic>
#include <csignal>
#include <mutex>

#include "core/descriptor.h"
#include "core/files.h"

namespace alibi::core {

/// An entry for one map. Entries are reused and never freed, because a signal handler may read them.
struct MappedRange {
  // Written under the lock. The handler accepts the fields below if the version is even and the same before and after
  // it reads them.
  std::atomic<uint64_t> version{0};
  std::atomic<uintptr_t> begin{0}, end{0};
  std::atomic<bool> torn{false};  // some pages were replaced
  MappedRange* next = nullptr;    // constant after the entry was added to the list

  // Protected by the lock.
  bool used = false;
  Descriptor file;
  std::filesystem::path path;
};

namespace {

std::mutex mutex;  // protects everything except the handler's accesses
std::atomic<MappedRange*> ranges{nullptr};
struct sigaction previous {};
uintptr_t page_bytes = 0;

void set(MappedRange& range, uintptr_t begin, uintptr_t end) {
  ++range.version;
  range.begin = begin;
  range.end = end;
  ++range.version;
}

/// Replaces the rest of a map by zeros, from the page of `address` on. Returns false if the address is in none of our
/// maps. The handler calls this, so it uses only atomics and system calls. The range of a map does not change while the
/// map is in use.
bool replace(uintptr_t address) {
  for (MappedRange* range = ranges; range != nullptr; range = range->next) {
    const uint64_t version = range->version;
    const uintptr_t begin = range->begin, end = range->end;
    if (version % 2 != 0 || range->version != version || address < begin || address >= end) continue;
    const uintptr_t page = address / page_bytes * page_bytes;
    range->torn = true;
    return ::mmap(reinterpret_cast<void*>(page), end - page, PROT_READ, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1,
                  0) != MAP_FAILED;
  }
  return false;
}

void on_bus_error(int signal, siginfo_t* info, void* context) {
  const int saved = errno;
  // si_code is not positive if another process sent the signal.
  const bool ours = info->si_code > 0 && replace(reinterpret_cast<uintptr_t>(info->si_addr));
  errno = saved;
  if (ours) return;
  if ((previous.sa_flags & SA_SIGINFO) != 0) return previous.sa_sigaction(signal, info, context);
  if (previous.sa_handler != SIG_DFL && previous.sa_handler != SIG_IGN) return previous.sa_handler(signal);
  ::sigaction(signal, &previous, nullptr);
  if (previous.sa_handler == SIG_DFL) ::raise(signal);  // delivered when this handler returns
}

/// The caller holds the lock.
void install_handler() {
  static bool installed = false;
  if (std::exchange(installed, true)) return;
  page_bytes = static_cast<uintptr_t>(::sysconf(_SC_PAGESIZE));
  struct sigaction action {};
  action.sa_sigaction = on_bus_error;
  action.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART;
  sigemptyset(&action.sa_mask);
  ::sigaction(SIGBUS, &action, &previous);
}

/// The caller holds the lock.
MappedRange& free_range() {
  for (MappedRange* range = ranges; range != nullptr; range = range->next) {
    if (!range->used) return *range;
  }
  auto* range = new MappedRange;
  range->next = ranges;
  ranges = range;
  return *range;
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  auto [file, size] = open_regular(path);
  if (size == 0) return;
  const std::lock_guard guard(mutex);
  install_handler();
  MappedRange& range = free_range();
  range.path = path;
  void* mapped = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  check_call(mapped != MAP_FAILED, "read", path);
  range.used = true;
  range.torn = false;
  range.file = std::move(file);
  const auto begin = reinterpret_cast<uintptr_t>(mapped);
  set(range, begin, begin + size);
  range_ = &range;
  data_ = mapped;
  size_ = size;
}

MappedFile::~MappedFile() {
  if (range_ == nullptr) return;
  const std::lock_guard guard(mutex);
  set(*range_, 0, 0);
  ::munmap(data_, size_);
  range_->file = Descriptor();
  range_->used = false;
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : range_(std::exchange(other.range_, nullptr)),
      data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(range_, other.range_);
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

const void* mapping_of(const void* data) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  const std::lock_guard guard(mutex);
  for (MappedRange* range = ranges; range != nullptr; range = range->next) {
    if (address >= range->begin && address < range->end) return reinterpret_cast<const void*>(range->begin.load());
  }
  return nullptr;
}

void check_mapped(const void* data) {
  const auto address = reinterpret_cast<uintptr_t>(data);
  const std::lock_guard guard(mutex);
  for (MappedRange* range = ranges; range != nullptr; range = range->next) {
    const uintptr_t begin = range->begin, end = range->end;
    if (address < begin || address >= end) continue;
    struct stat info {};
    check_call(::fstat(range->file.get(), &info) == 0, "read", range->path);
    const auto size = static_cast<size_t>(info.st_size);
    check(size >= end - begin, "[read] {}: has {} bytes now, expected {}: the file was truncated while it was in use",
          range->path.string(), size, end - begin);
    check(!range->torn, "[read] {}: a part could not be read: the file changed or its disk has a fault",
          range->path.string());
  }
}

}  // namespace alibi::core
