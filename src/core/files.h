// Files: whole, beside-and-renamed, or mapped.
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>

namespace alibi {

/// The whole file. Throws Error with the path and the reason.
std::string read_file(const std::filesystem::path& path);

/// Writes beside the target, syncs, renames over it: after a crash there is the old file or the new one, nothing
/// between. `write` is called once with an append function.
void write_file(const std::filesystem::path& path, std::string_view content);
void write_file(const std::filesystem::path& path,
                const std::function<void(const std::function<void(std::string_view)>& append)>& write);

/// Makes a folder and its parents. Throws Error if it cannot be made or written to.
void make_folder(const std::filesystem::path& path);

/// A read-only memory map of a file.
class MappedFile {
 public:
  MappedFile() = default;
  explicit MappedFile(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept;
  MappedFile& operator=(MappedFile&& other) noexcept;
  std::span<const std::byte> bytes() const { return {static_cast<const std::byte*>(data_), size_}; }

 private:
  void* data_ = nullptr;
  size_t size_ = 0;
};

}  // namespace alibi
