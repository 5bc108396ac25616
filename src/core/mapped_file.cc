#include <sys/mman.h>

#include <map>
#include <mutex>

#include "core/descriptor.h"
#include "core/files.h"

namespace alibi::core {
namespace {

std::mutex mutex;
/// Ends of all maps by their begins. Never destroyed, because models may be destroyed while the program ends.
std::map<const void*, const void*>& maps() {
  static auto& all = *new std::map<const void*, const void*>;
  return all;
}

}  // namespace

MappedFile::MappedFile(const std::filesystem::path& path) {
  const auto [file, size] = open_regular(path);
  if (size == 0) return;
  void* mapped = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file.get(), 0);
  check_call(mapped != MAP_FAILED, "read", path);
  data_ = mapped;
  size_ = size;
  const std::lock_guard guard(mutex);
  maps()[data_] = bytes().data() + size;
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  const std::lock_guard guard(mutex);
  maps().erase(data_);
  ::munmap(data_, size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

bool is_mapped(const void* data) {
  const std::lock_guard guard(mutex);
  const auto after = maps().upper_bound(data);
  return after != maps().begin() && std::less<>()(data, std::prev(after)->second);
}

}  // namespace alibi::core
