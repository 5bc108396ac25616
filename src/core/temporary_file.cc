#include "core/temporary_file.h"

#include <cstdlib>

#include "core/files.h"
#include "core/format.h"

namespace alibi::core {
namespace {

/// Calls transfer(offset) until all bytes are transferred.
template <class Transfer>
void transfer_all(size_t bytes, const char* operation, const std::filesystem::path& folder, const Transfer& transfer) {
  for (size_t done = 0; done < bytes;) {
    const ssize_t now = transfer(done);
    if (now < 0 && errno == EINTR) continue;
    check_call(now >= 0, operation, folder);
    check(now > 0, "[{}] {}: the file ended early", operation, folder.string());
    done += static_cast<size_t>(now);
  }
}

}  // namespace

TemporaryFile::TemporaryFile(int64_t bytes) {
  std::error_code error;
  folder_ = std::filesystem::temp_directory_path(error);
  check(!error, "[temporary file] there is no folder for temporary files: {}; set TMPDIR", error.message());
  std::string name = (folder_ / "alibi-XXXXXX").string();
  descriptor_ = Descriptor(::mkostemp(name.data(), O_CLOEXEC));
  check_call(descriptor_.get() >= 0, "temporary file", folder_);
  ::unlink(name.c_str());
  const int problem = ::posix_fallocate(descriptor_.get(), 0, static_cast<off_t>(bytes));
  check(problem == 0, "[temporary file] {} are needed in {}: {}; set TMPDIR to another folder", format_bytes(bytes),
        folder_.string(), std::generic_category().message(problem));
}

void TemporaryFile::write(const void* data, size_t bytes, int64_t at) {
  transfer_all(bytes, "temporary file", folder_, [&](size_t done) {
    return ::pwrite(descriptor_.get(), static_cast<const char*>(data) + done, bytes - done,
                    at + static_cast<off_t>(done));
  });
}

void TemporaryFile::read(void* data, size_t bytes, int64_t at) const {
  transfer_all(bytes, "temporary file", folder_, [&](size_t done) {
    return ::pread(descriptor_.get(), static_cast<char*>(data) + done, bytes - done, at + static_cast<off_t>(done));
  });
}

TemporaryFolder::TemporaryFolder(std::filesystem::path folder) : path(std::move(folder)) { make_folder(path); }

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path, ignored);
}

}  // namespace alibi::core
