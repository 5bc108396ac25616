#include "core/files.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <system_error>
#include <utility>

#include "core/check.h"

namespace alibi {
namespace {

std::string reason() { return std::generic_category().message(errno); }

/// `ok` is what a system call said. It has been evaluated when errno is read here; among the arguments of check() it
/// need not have been.
void check_call(bool ok, const char* operation, const std::filesystem::path& path) {
  if (!ok) fail("[{}] {}: {}", operation, path.string(), reason());
}

/// A file descriptor that closes itself.
struct Descriptor {
  int fd = -1;
  explicit Descriptor(int descriptor) : fd(descriptor) {}
  Descriptor(const Descriptor&) = delete;
  Descriptor& operator=(const Descriptor&) = delete;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

void sync_folder(const std::filesystem::path& folder) {
  const Descriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (descriptor.fd >= 0) ::fsync(descriptor.fd);  // some file systems cannot: the rename itself still holds
}

void write_all(int descriptor, std::string_view content, const std::filesystem::path& path) {
  while (!content.empty()) {
    const ssize_t put = ::write(descriptor, content.data(), content.size());
    if (put < 0 && errno == EINTR) continue;
    check_call(put >= 0, "write", path);
    content.remove_prefix(static_cast<size_t>(put));
  }
}

}  // namespace

std::string read_file(const std::filesystem::path& path, size_t most) {
  const Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  check_call(descriptor.fd >= 0, "read", path);
  std::string content;
  char buffer[1 << 16];
  for (;;) {
    const ssize_t got = ::read(descriptor.fd, buffer, sizeof buffer);
    if (got < 0 && errno == EINTR) continue;
    check_call(got >= 0, "read", path);
    if (got == 0) return content;
    check(content.size() + static_cast<size_t>(got) <= most, "[read] {}: has more than {} bytes", path.string(), most);
    content.append(buffer, static_cast<size_t>(got));
  }
}

void write_file(const std::filesystem::path& path, std::string_view content) {
  write_file(path, [&](const std::function<void(std::string_view)>& append) { append(content); });
}

void write_file(const std::filesystem::path& path,
                const std::function<void(const std::function<void(std::string_view)>& append)>& write) {
  write_file_with_header(path, 0, [&](const std::function<void(std::string_view)>& append) {
    write(append);
    return std::string();
  });
}

void write_file_with_header(
    const std::filesystem::path& path, size_t header_size,
    const std::function<std::string(const std::function<void(std::string_view)>& append)>& write) {
  static std::atomic<uint64_t> counter{0};
  const std::filesystem::path beside = path.string() + fmt::format(".{}.{}.part", ::getpid(), counter.fetch_add(1));
  struct Remove {
    std::filesystem::path path;
    bool armed = true;
    ~Remove() {
      if (armed) ::unlink(path.c_str());
    }
  } remove{beside};
  {
    const Descriptor descriptor(::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (descriptor.fd < 0) remove.armed = false;
    check_call(descriptor.fd >= 0, "write", path);
    const auto append = [&](std::string_view part) { write_all(descriptor.fd, part, path); };
    append(std::string(header_size, '\0'));
    const std::string header = write(append);
    check(header.size() == header_size, "[write] {}: a header of {} bytes, expected {}", path.string(), header.size(),
          header_size);
    check_call(::lseek(descriptor.fd, 0, SEEK_SET) == 0, "write", path);
    append(header);
    check_call(::fsync(descriptor.fd) == 0, "write", path);
  }
  check_call(::rename(beside.c_str(), path.c_str()) == 0, "write", path);
  remove.armed = false;
  sync_folder(path.has_parent_path() ? path.parent_path() : ".");
}

void make_folder(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  check(!error && std::filesystem::is_directory(path), "[folder] {}: {}", path.string(),
        error ? error.message() : std::string("exists and is no folder"));
  check_call(::access(path.c_str(), W_OK | X_OK) == 0, "folder", path);
}

AppendFile::AppendFile(const std::filesystem::path& path)
    : path_(path), descriptor_(::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  check_call(descriptor_ >= 0, "write", path);
}

AppendFile::~AppendFile() { ::close(descriptor_); }

void AppendFile::append(std::string_view content) { write_all(descriptor_, content, path_); }

void AppendFile::sync() { check_call(::fsync(descriptor_) == 0, "write", path_); }

void rename_synced(const std::filesystem::path& from, const std::filesystem::path& to) {
  check_call(::rename(from.c_str(), to.c_str()) == 0, "rename", from);
  sync_folder(to.has_parent_path() ? to.parent_path() : ".");
}

bool is_left_by_write_file(const std::filesystem::path& name) {
  // NAME.process.number.part
  std::filesystem::path rest = name.filename();
  if (rest.extension() != ".part") return false;
  rest = rest.stem();
  for (int i = 0; i < 2; ++i, rest = rest.stem()) {
    const std::string digits = rest.extension().string();
    if (digits.size() < 2 || digits.find_first_not_of("0123456789", 1) != std::string::npos) return false;
  }
  return true;
}

FolderLock::FolderLock(const std::filesystem::path& folder)
    : descriptor_(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
  check_call(descriptor_ >= 0, "lock", folder);
  if (::flock(descriptor_, LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK) return;
  ::close(descriptor_);
  fail("[lock] {} is in use by another process; wait for it, or choose another folder", folder.string());
}

FolderLock::~FolderLock() { ::close(descriptor_); }

MappedFile::MappedFile(const std::filesystem::path& path) {
  const Descriptor descriptor(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  check_call(descriptor.fd >= 0, "read", path);
  struct stat info {};
  check_call(::fstat(descriptor.fd, &info) == 0, "read", path);
  check(S_ISREG(info.st_mode), "[read] {}: not a regular file", path.string());
  if (info.st_size == 0) return;
  void* mapped = ::mmap(nullptr, static_cast<size_t>(info.st_size), PROT_READ, MAP_PRIVATE, descriptor.fd, 0);
  check_call(mapped != MAP_FAILED, "read", path);
  data_ = mapped;
  size_ = static_cast<size_t>(info.st_size);
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(data_, size_);
}

MappedFile::MappedFile(MappedFile&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

MappedFile& MappedFile::operator=(MappedFile&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

}  // namespace alibi
