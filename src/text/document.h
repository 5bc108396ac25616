// One text: a file that is read where it lies, or memory.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>

namespace alibi::text {

/// Of a text's bytes; texts with the same one and the same size are taken to be the same.
struct Digest {
  uint64_t first = 0, second = 0;
  auto operator<=>(const Digest&) const = default;  // NOLINT(modernize-use-nullptr): the check misreads the operator
};
Digest digest_of(std::string_view bytes);

/// The bytes of a document while they are in use. They may be mapped: what is read from them holds if check_mapped()
/// (core/files.h) says so afterwards.
class OpenText {
 public:
  OpenText() = default;
  OpenText(std::string_view view, std::shared_ptr<const void> owner) : view_(view), owner_(std::move(owner)) {}
  std::string_view view() const { return view_; }

 private:
  std::string_view view_;
  std::shared_ptr<const void> owner_;
};

/// A document holds no text of its own unless it came through a pipe: a corpus may be larger than memory.
class Document {
 public:
  /// In memory.
  Document(std::filesystem::path path, std::string name, std::string text);
  /// A regular file. `text` is what open_file() gave for it.
  Document(std::filesystem::path path, std::string name, const OpenText& text);

  std::filesystem::path path;  ///< as reached from the input; "-" for standard input
  std::string name;            ///< relative to the input: what the split between training and validation hashes

  int64_t size() const { return end_ - begin_; }  ///< bytes
  const Digest& digest() const { return digest_; }
  /// Throws Error if the file can no longer be read or has another size than before.
  OpenText open() const;
  std::string text() const;
  /// The bytes from `begin` to `end` as a document of the same name.
  Document part(int64_t begin, int64_t end) const;

 private:
  std::shared_ptr<const std::string> memory_;  ///< null: in the file
  int64_t file_size_ = 0;
  int64_t begin_ = 0, end_ = 0;  ///< in the file or in memory
  Digest digest_;
};

/// A regular file; large ones are mapped. Throws Error with the path and the reason.
OpenText open_file(const std::filesystem::path& path);

}  // namespace alibi::text
