// Text from files, folders and standard input.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <iostream>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "alibi/training_data.h"
#include "core/checksum.h"

namespace alibi::text {

/// The bytes of a document while they are in use.
class OpenText {
 public:
  OpenText() = default;
  OpenText(std::string_view view, std::shared_ptr<const void> owner) : view_(view), owner_(std::move(owner)) {}
  std::string_view view() const { return view_; }

 private:
  std::string_view view_;
  std::shared_ptr<const void> owner_;
};

/// One text. A document holds no text of its own unless it came through a pipe, because a corpus may be larger than
/// memory.
class Document {
 public:
  /// A document in memory.
  Document(std::filesystem::path path, std::string name, std::string text);
  /// A regular file. `text` is the result of open_file().
  Document(std::filesystem::path path, std::string name, const OpenText& text);

  std::filesystem::path path;  ///< path from the input; "-" for standard input
  std::string name;            ///< path relative to the input, which the split into training and validation text hashes

  int64_t size() const { return end_ - begin_; }  ///< bytes
  /// Digest of the bytes. Texts with the same size and the same digest are considered equal.
  const core::Digest& digest() const { return digest_; }
  /// Throws Error if the file can no longer be read or its size has changed.
  OpenText open() const;
  std::string text() const;
  /// The bytes from `begin` to `end` as a document of the same name.
  Document part(int64_t begin, int64_t end) const;

 private:
  std::shared_ptr<const std::string> memory_;  ///< null if the text is in the file
  int64_t file_size_ = 0;
  int64_t begin_ = 0, end_ = 0;  ///< range in the file or in memory
  core::Digest digest_;
};

/// A regular file; large ones are mapped. Throws Error with the path and the reason.
OpenText open_file(const std::filesystem::path& path);

enum class EmptyFiles : uint8_t { skip, keep };

/// Reads each input in the given order and checks that it is text. An input is a file, a folder or "-" (standard
/// input). Text that comes through a pipe, is compressed (gzip, Zstandard) or is in records (.jsonl: the string `field`
/// of each line is a document) is kept in memory. All other text stays in its file. A folder stands for all text files
/// below it, in the bytewise order of their relative paths. Hidden files and folders (names that begin with a dot),
/// empty files, files that are not text (see text_encoding.h) and files that are not regular are skipped. Links are
/// followed, loops are detected, and a file that is reached twice is read once. `files`, if given, receives the number
/// of files and the skipped ones, hidden files and folders aside. With EmptyFiles::keep an empty file is a document.
/// Throws Error for an input that is missing, unreadable, empty or not text, and for a folder without any text. Throws
/// UsageError for no input, or for "-" given twice.
std::vector<Document> read_documents(const std::vector<std::string>& inputs, std::istream& standard_input = std::cin,
                                     const std::string& field = kTextField, FilesRead* files = nullptr,
                                     EmptyFiles empty = EmptyFiles::skip);

/// Sum of the lengths of the texts.
int64_t bytes_of(const std::vector<Document>& documents);

}  // namespace alibi::text
