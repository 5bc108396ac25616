#include "core/files.h"

#include <sys/file.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <climits>
#include <cstring>

#include "core/format.h"
#include "core/locks.h"
#include "core/system.h"

namespace alibi::core {
namespace {

namespace fs = std::filesystem;

/// Status of the file that a path refers to, or nothing if it does not exist.
std::optional<struct stat> status_of(const fs::path& path, const char* operation) {
  struct stat info {};
  if (::stat(path.c_str(), &info) == 0) return info;
  check_call(errno == ENOENT || errno == ENOTDIR, operation, path);
  return std::nullopt;
}

fs::path folder_of(const fs::path& path) { return path.has_parent_path() ? path.parent_path() : "."; }

void sync_folder(const fs::path& folder) {
  const Descriptor descriptor(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (descriptor.get() >= 0) ::fsync(descriptor.get());  // some file systems cannot sync; that is not an error
}

void write_all(int descriptor, std::string_view content, const fs::path& path) {
  while (!content.empty()) {
    const ssize_t put = ::write(descriptor, content.data(), content.size());
    if (put < 0 && errno == EINTR) continue;
    check_call(put >= 0, "write", path);
    content.remove_prefix(static_cast<size_t>(put));
  }
}

/// The descriptor number at the end of a path such as /dev/fd/1.
std::optional<int> named_descriptor(const fs::path& path) {
  const std::string name = path.lexically_normal().string();
  if (name == "/dev/stdin") return STDIN_FILENO;
  if (name == "/dev/stdout") return STDOUT_FILENO;
  if (name == "/dev/stderr") return STDERR_FILENO;
  for (const std::string& folder :
       {std::string("/dev/fd/"), std::string("/proc/self/fd/"), fmt::format("/proc/{}/fd/", ::getpid())}) {
    int number = -1;
    if (!name.starts_with(folder)) continue;
    if (parse_number(std::string_view(name).substr(folder.size()), number) && number >= 0) return number;
  }
  return std::nullopt;
}

/// The file that a path refers to, after links.
struct Target {
  fs::path path;
  std::optional<int> descriptor;    ///< set if the path names an open file
  std::optional<struct stat> info;  ///< nothing if the file does not exist yet
  /// Whether the file is replaced by renaming a temporary file.
  bool is_replaced() const { return !descriptor && (!info || (S_ISREG(info->st_mode) && !system::is_in_proc(path))); }
};

/// Follows the links at the end of the path one by one. The last one may point to a file that does not exist.
Target target_of(const fs::path& path, const char* operation) {
  constexpr int most = 40;  // the system's limit
  fs::path at = path.has_filename() ? path : path.parent_path();
  for (int links = 0;; ++links) {
    if (const std::optional<int> descriptor = named_descriptor(at)) return {at, descriptor, std::nullopt};
    std::error_code error;
    const fs::path next = system::is_in_proc(at) ? fs::path() : fs::read_symlink(at, error);
    if (error || next.empty()) return {at, std::nullopt, status_of(at, operation)};
    check(links < most, "[{}] {}: the path goes through more than 40 links, probably in a circle", operation,
          path.string());
    at = at.parent_path() / next;
  }
}

/// The path as messages show it.
std::string shown(const fs::path& path, const Target& target) {
  if (target.descriptor == STDOUT_FILENO) return "standard output";
  if (target.descriptor == STDERR_FILENO) return "standard error";
  return path.string();
}

Descriptor connect_to(const fs::path& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  check(path.native().size() < sizeof address.sun_path, "[write] {}: the path is too long for a socket", path.string());
  std::memcpy(address.sun_path, path.c_str(), path.native().size());
  Descriptor socket(system::open_unix_socket());
  check_call(socket.get() >= 0, "write", path);
  check_call(::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0, "write", path);
  return socket;
}

/// Opens files that are written in place. Opening a FIFO waits for its reader.
Descriptor open_as_it_is(const Target& target) {
  if (target.info && S_ISSOCK(target.info->st_mode)) return connect_to(target.path);
  Descriptor opened(target.descriptor ? ::fcntl(*target.descriptor, F_DUPFD_CLOEXEC, 0)
                                      : ::open(target.path.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC));
  check_call(opened.get() >= 0, "write", shown(target.path, target));
  return opened;
}

/// A name in the same folder that is_left_by_write_file() recognizes.
fs::path name_beside(const fs::path& path) {
  static std::atomic<uint64_t> counter{0};
  const std::string end = fmt::format(".{}.{}.part", ::getpid(), counter.fetch_add(1));
  const std::string name = path.filename().string();
  return path.parent_path() / (name.substr(0, NAME_MAX - std::min<size_t>(end.size(), NAME_MAX)) + end);
}

/// Gives the new file the permissions of the old one.
void keep_permissions(int descriptor, const struct stat& old, const fs::path& path) {
  struct stat now {};
  check_call(::fstat(descriptor, &now) == 0, "write", path);
  // Only root can change the owner. Other users may be able to change the group.
  if ((now.st_uid != old.st_uid || now.st_gid != old.st_gid) && ::fchown(descriptor, old.st_uid, old.st_gid) != 0 &&
      now.st_gid != old.st_gid) {
    [[maybe_unused]] const int ignored = ::fchown(descriptor, static_cast<uid_t>(-1), old.st_gid);
  }
  // If changing the permissions of our own file fails, the file system does not have permissions.
  check_call(::fchmod(descriptor, old.st_mode & 0777) == 0 || errno == EPERM || errno == ENOTSUP, "write", path);
}

/// A temporary file that is renamed to the target at the end.
class FileBeside {
 public:
  FileBeside(const Target& target, const fs::path& path) : target_(target) {
    if (target.info) check_call(::access(target.path.c_str(), W_OK) == 0, "write", path);
    remove_left_files(folder_of(target.path), target.path.filename().string());
    const mode_t mode = target.info ? target.info->st_mode & 0777
                                    : 0666;  // at no time may more users read the new file than the old one
    bool is_locked = false;
    do {  // again if another process took the file for one that was left, before it was locked
      beside_ = name_beside(target.path);
      file_ = Descriptor(::open(beside_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
      check_call(file_.get() >= 0, "write", path);
      is_locked = ::flock(file_.get(), LOCK_EX | LOCK_NB) == 0 || errno != EWOULDBLOCK;
    } while (!is_locked || !leads_to(beside_, file_.get()));
    is_there_ = true;
    if (target.info) keep_permissions(file_.get(), *target.info, path);
  }
  ~FileBeside() {
    if (is_there_) ::unlink(beside_.c_str());
  }

  int descriptor() const { return file_.get(); }
  void rename(const fs::path& path) {
    check_call(::fsync(file_.get()) == 0, "write", path);
    check_call(::rename(beside_.c_str(), target_.path.c_str()) == 0, "write", path);
    is_there_ = false;
    sync_folder(folder_of(target_.path));
  }

 private:
  const Target& target_;
  fs::path beside_;
  Descriptor file_;
  bool is_there_ = false;
};

void check_no_folder(const fs::path& path, const Target& target) {
  check(path.has_filename() && (!target.info || !S_ISDIR(target.info->st_mode)),
        "[write] {}: is a folder, expected the name of a file", path.string());
}

/// `wanted` is the path given by the caller.
void make_folders(const fs::path& path, const fs::path& wanted) {
  const Target target = target_of(path, "folder");
  check(!target.descriptor, "[folder] {}: is an open file, expected a folder", wanted.string());
  if (target.info) {
    check(S_ISDIR(target.info->st_mode), "[folder] {}: {} is {}, expected a folder", wanted.string(),
          target.path.string(), kind_of(target.info->st_mode));
  } else {
    if (target.path.has_parent_path() && target.path.has_relative_path())
      make_folders(target.path.parent_path(), wanted);
    check_call(::mkdir(target.path.c_str(), 0777) == 0 || errno == EEXIST, "folder", wanted);
  }
  check_call(::access(target.path.c_str(), W_OK | X_OK) == 0, "folder", wanted);
}

}  // namespace

bool leads_to(const fs::path& path, int descriptor) {
  struct stat there {
  }, before{};
  if (::stat(path.c_str(), &there) != 0) return descriptor < 0;
  return descriptor >= 0 && ::fstat(descriptor, &before) == 0 && there.st_dev == before.st_dev &&
         there.st_ino == before.st_ino;
}

const char* kind_of(mode_t mode) {
  switch (mode & S_IFMT) {
    case S_IFREG:
      return "a regular file";
    case S_IFDIR:
      return "a folder";
    case S_IFIFO:
      return "a FIFO";
    case S_IFSOCK:
      return "a socket";
    case S_IFCHR:
    case S_IFBLK:
      return "a device";
    default:
      return "a file of an unknown kind";
  }
}

std::pair<Descriptor, size_t> open_regular(const fs::path& path) {
  const auto check_regular = [&](const struct stat& info) {
    check(S_ISREG(info.st_mode), "[read] {}: is {}, expected a regular file", path.string(), kind_of(info.st_mode));
  };
  struct stat info {};
  check_call(::stat(path.c_str(), &info) == 0, "read", path);
  check_regular(info);  // checked before opening, because opening a device may have an effect
  Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  check_call(file.get() >= 0, "read", path);
  check_call(::fstat(file.get(), &info) == 0, "read", path);
  check_regular(info);
  return {std::move(file), static_cast<size_t>(info.st_size)};
}

bool path_exists(const fs::path& path) { return status_of(path, "read").has_value(); }

bool is_folder(const fs::path& path) {
  const auto info = status_of(path, "read");
  return info && S_ISDIR(info->st_mode);
}

std::string read_file(const fs::path& path, size_t most) {
  const auto [file, size] = open_regular(path);
  check(size <= most, "[read] {}: has {} bytes, expected at most {}", path.string(), size, most);
  std::string content(size, '\0');
  // Reads one byte more than expected to detect the end.
  char more = 0;
  for (size_t at = 0;;) {
    const bool whole = at == size;
    const ssize_t got = ::read(file.get(), whole ? &more : content.data() + at, whole ? 1 : size - at);
    if (got < 0 && errno == EINTR) continue;
    check_call(got >= 0, "read", path);
    if (whole && got == 0) return content;
    check(got > 0, "[read] {}: has {} bytes now, expected {}: the file was truncated during the read", path.string(),
          at, size);
    check(!whole, "[read] {}: has more than the expected {} bytes: the file grew during the read", path.string(), size);
    at += static_cast<size_t>(got);
  }
}

void write_file(const fs::path& path, std::string_view content) {
  write_file(path, [&](const std::function<void(std::string_view)>& append) { append(content); });
}

void write_file(const fs::path& path,
                const std::function<void(const std::function<void(std::string_view)>& append)>& write) {
  write_file_with_header(path, 0, [&](const std::function<void(std::string_view)>& append) {
    write(append);
    return std::string();
  });
}

void write_file_with_header(
    const fs::path& path, size_t header_size,
    const std::function<std::string(const std::function<void(std::string_view)>& append)>& write) {
  const Target target = target_of(path, "write");
  check_no_folder(path, target);
  const std::string name = shown(path, target);
  if (!target.is_replaced()) {
    check(header_size == 0, "[write] {}: is not a regular file; expected one, because the header is written last",
          name);
    const Descriptor opened = open_as_it_is(target);
    write([&](std::string_view part) { write_all(opened.get(), part, name); });
    return;
  }
  FileBeside file(target, path);
  const auto append = [&](std::string_view part) { write_all(file.descriptor(), part, path); };
  append(std::string(header_size, '\0'));
  const std::string header = write(append);
  check(header.size() == header_size, "[write] {}: the header has {} bytes, expected {}", name, header.size(),
        header_size);
  check_call(::lseek(file.descriptor(), 0, SEEK_SET) == 0, "write", path);
  append(header);
  file.rename(path);
}

void check_output_file(const fs::path& path) {
  const Target target = target_of(path, "write");
  check_no_folder(path, target);
  if (target.descriptor) {
    const int flags = ::fcntl(*target.descriptor, F_GETFL);
    check_call(flags >= 0, "write", shown(path, target));
    check((flags & O_ACCMODE) != O_RDONLY,
          "[write] {}: is closed or open only for reading, expected a file open for writing", shown(path, target));
    return;
  }
  if (target.is_replaced()) make_folder(folder_of(target.path));
  if (target.info) check_call(::access(target.path.c_str(), W_OK) == 0, "write", path);
}

std::optional<fs::path> replaced_file(const fs::path& path) {
  const Target target = target_of(path, "write");
  return target.is_replaced() ? std::optional(target.path) : std::nullopt;
}

std::optional<int> descriptor_of(const fs::path& path) { return target_of(path, "write").descriptor; }

void make_folder(const fs::path& path) { make_folders(path, path); }

AppendFile::AppendFile(const fs::path& path)
    : path_(path), descriptor_(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0666)) {
  check_call(descriptor_.get() >= 0, "write", path);
}

void AppendFile::append(std::string_view content) { write_all(descriptor_.get(), content, path_); }

void AppendFile::sync() { check_call(::fsync(descriptor_.get()) == 0, "write", path_); }

bool AppendFile::is_in_place() const { return leads_to(path_, descriptor_.get()); }

std::string AppendFile::content() const {
  std::string content;
  std::array<char, 1 << 16> part{};
  for (;;) {
    const ssize_t got = ::pread(descriptor_.get(), part.data(), part.size(), static_cast<off_t>(content.size()));
    if (got < 0 && errno == EINTR) continue;
    check_call(got >= 0, "read", path_);
    if (got == 0) return content;
    content.append(part.data(), static_cast<size_t>(got));
  }
}

void rename_synced(const fs::path& from, const fs::path& to) {
  check_call(::rename(from.c_str(), to.c_str()) == 0, "rename", from);
  sync_folder(folder_of(to));
}

bool is_left_by_write_file(const fs::path& name) {
  // The names have the form NAME.process.number.part.
  fs::path rest = name.filename();
  if (rest.extension() != ".part") return false;
  rest = rest.stem();
  for (int i = 0; i < 2; ++i, rest = rest.stem()) {
    const std::string digits = rest.extension().string();
    if (digits.size() < 2 || digits.find_first_not_of("0123456789", 1) != std::string::npos) return false;
  }
  return true;
}

void remove_left_files(const fs::path& folder, const std::string& name) {
  std::error_code error;
  for (fs::directory_iterator entry(folder, error), end; !error && entry != end; entry.increment(error)) {
    const std::string found = entry->path().filename().string();
    if (!is_left_by_write_file(found)) continue;
    const std::string of = fs::path(found).stem().stem().stem().string();  // a long name is cut
    if (!name.empty() && of != name.substr(0, NAME_MAX - (found.size() - of.size()))) continue;
    const Descriptor file(::open(entry->path().c_str(), O_RDWR | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    struct stat info {};
    if (file.get() < 0 || ::fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) continue;
    if (::flock(file.get(), LOCK_EX | LOCK_NB) == 0) ::unlink(entry->path().c_str());  // else its writer is alive
  }
}

}  // namespace alibi::core
