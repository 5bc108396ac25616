#include "text/documents.h"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <set>
#include <system_error>
#include <utility>

#include "core/check.h"
#include "core/checksum.h"
#include "core/files.h"
#include "text/compressed.h"
#include "text/text_encoding.h"

namespace alibi::text {
namespace {

namespace fs = std::filesystem;

bool is_hidden(const fs::path& path) { return path.filename().native().starts_with('.'); }

/// Adds the relative paths of all visible regular files below `folder`. `open_folders` holds the canonical paths of the
/// folders from the input down to this one. A link back to one of them would be a loop.
void list_files(const fs::path& folder, const fs::path& relative, std::set<fs::path>& open_folders,
                std::vector<std::string>& names) {
  std::error_code error;
  const fs::path canonical = fs::canonical(folder, error);
  check(!error, "[text] {}: {}", folder.string(), error.message());
  const auto [entered, first_time] = open_folders.insert(canonical);
  if (!first_time) return;
  fs::directory_iterator entries(folder, error);
  check(!error, "[text] {}: {}", folder.string(), error.message());
  for (; entries != fs::directory_iterator(); entries.increment(error)) {
    const fs::path path = entries->path();
    if (is_hidden(path)) continue;
    std::error_code ignored;  // a dangling link is skipped
    const fs::file_status status = fs::status(path, ignored);
    if (fs::is_directory(status)) list_files(path, relative / path.filename(), open_folders, names);
    if (fs::is_regular_file(status)) names.push_back((relative / path.filename()).generic_string());
  }
  check(!error, "[text] {}: {}", folder.string(), error.message());
  open_folders.erase(entered);
}

/// Reads the stream to its end, or to the first block with a NUL byte, because a device may never end. Returns false if
/// reading fails.
bool read_stream(std::istream& stream, std::string& text) {
  std::array<char, 1 << 16> block;
  do {
    stream.read(block.data(), block.size());
    text.append(block.data(), static_cast<size_t>(stream.gcount()));
  } while (stream && std::memchr(block.data(), 0, block.size()) == nullptr);
  return !stream.bad() && !(&stream == &std::cin && std::ferror(stdin) != 0);
}

/// Whether the first block has a NUL byte and is not the beginning of a compressed file. So large binary files need not
/// be read whole.
bool begins_binary(const fs::path& path) {
  std::array<char, 8192> block;
  std::ifstream file(path, std::ios::binary);
  file.read(block.data(), block.size());
  const std::string_view beginning(block.data(), static_cast<size_t>(file.gcount()));
  return !is_compressed(beginning) && beginning.find('\0') != std::string_view::npos;
}

class Reader {
 public:
  Reader(std::istream& standard_input, const std::string& field, EmptyFiles empty)
      : standard_input_(standard_input), field_(field), empty_(empty) {}

  void read(const std::string& input) {
    if (input == "-") return read_standard_input();
    std::error_code error;
    const fs::file_status status = fs::status(input, error);
    check(fs::exists(status), "[text] {}: {}", input,
          error && status.type() != fs::file_type::not_found ? error.message() : "no such file or folder");
    if (fs::is_directory(status)) return read_folder(input);
    check(fs::is_regular_file(status) || fs::is_fifo(status), "[text] {}: is neither a file nor a folder", input);
    read_named_file(input, fs::is_regular_file(status));
  }

  std::vector<Document> take() { return std::move(documents_); }
  const FilesRead& files() const { return files_; }

 private:
  void read_standard_input() {
    check_usage(!standard_input_read_, "[text] standard input (-) can be read only once");
    standard_input_read_ = true;
    std::string text;
    check(read_stream(standard_input_, text), "[text] standard input cannot be read");
    check(!text.empty(), "[text] standard input is empty");
    const std::string reason = why_not_text(text);
    check(reason.empty(), "[text] standard input is not text: {}", reason);
    documents_.emplace_back("-", "-", std::move(text));
  }

  void read_named_file(const fs::path& path, bool regular) {
    if (!first_visit(path)) return;
    ++files_.files;
    if (!regular) return read_fifo(path);
    const std::string reason = add_file(path, path.filename().generic_string());
    check(reason.empty(), "[text] {}: {}", path.string(), reason);
  }

  /// A shell creates a FIFO for <(zcat text.gz).
  void read_fifo(const fs::path& path) {
    std::ifstream stream(path, std::ios::binary);
    std::string text;
    check(stream.is_open() && read_stream(stream, text), "[text] {}: cannot be read", path.string());
    const std::string reason = why_not_used(text);
    check(reason.empty(), "[text] {}: {}", path.string(), reason);
    documents_.emplace_back(path, path.filename().generic_string(), std::move(text));
  }

  std::string why_not_used(std::string_view text) const {
    if (text.empty()) return empty_ == EmptyFiles::keep ? "" : "is empty";
    const std::string reason = why_not_text(text);
    return reason.empty() ? reason : "is not text: " + reason;
  }

  /// Adds a regular file, or returns the reason why it is not text.
  std::string add_file(const fs::path& path, std::string name) {
    const OpenText file = open_file(path);
    const bool compressed = is_compressed(file.view());
    std::string unpacked;
    if (compressed) {
      unpacked = unpack(file.view(), path.string());
      name = unpacked_name(name);
    }
    const std::string_view text = compressed ? unpacked : file.view();
    std::string reason = why_not_used(text);
    if (reason.empty() && has_records(name)) {
      add_records(path, name, text);
    } else if (reason.empty() && compressed) {
      documents_.emplace_back(path, std::move(name), std::move(unpacked));
    } else if (reason.empty()) {
      documents_.emplace_back(path, std::move(name), file);
    }
    return reason;
  }

  void add_records(const fs::path& path, const std::string& name, std::string_view lines) {
    std::vector<Record> records = read_records(lines, field_, path.string());
    check(!records.empty(), "[text] {}: no line of it has text in the field '{}'", path.string(), field_);
    for (Record& record : records) {
      documents_.emplace_back(path, fmt::format("{}:{}", name, record.line), std::move(record.text));
    }
  }

  void read_folder(const fs::path& folder) {
    std::set<fs::path> open_folders;
    std::vector<std::string> names;
    list_files(folder, {}, open_folders, names);
    std::sort(names.begin(), names.end());
    bool found = false;
    for (std::string& name : names) {
      const fs::path path = folder / name;
      if (!first_visit(path)) {
        found = true;
        continue;
      }
      ++files_.files;
      std::string reason = begins_binary(path) ? "is not text: it has a NUL byte" : add_file(path, std::move(name));
      if (reason.empty()) {
        found = true;
      } else {
        files_.skipped.push_back({path.string(), std::move(reason)});
      }
    }
    check(found, "[text] {}: contains no text files", folder.string());
  }

  bool first_visit(const fs::path& path) {
    std::error_code error;
    const fs::path canonical = fs::canonical(path, error);
    return error || visited_.insert(canonical).second;  // on an error, the later attempt to read gives a better message
  }

  std::istream& standard_input_;
  const std::string& field_;
  EmptyFiles empty_;
  FilesRead files_;
  bool standard_input_read_ = false;
  std::set<fs::path> visited_;
  std::vector<Document> documents_;
};

/// Smaller files are read, because a process may map only a limited number of files.
constexpr uintmax_t kMapFrom = uintmax_t{1} << 20;

OpenText in_memory(const std::shared_ptr<const std::string>& text) { return {*text, text}; }

}  // namespace

std::vector<Document> read_documents(const std::vector<std::string>& inputs, std::istream& standard_input,
                                     const std::string& field, FilesRead* files, EmptyFiles empty) {
  check_usage(!inputs.empty(), "[text] no text given; expected files, folders or - for standard input");
  Reader reader(standard_input, field, empty);
  for (const std::string& input : inputs) reader.read(input);
  if (files != nullptr) {
    files->files += reader.files().files;
    files->skipped.insert(files->skipped.end(), reader.files().skipped.begin(), reader.files().skipped.end());
  }
  return reader.take();
}

int64_t bytes_of(const std::vector<Document>& documents) {
  int64_t bytes = 0;
  for (const Document& document : documents) bytes += document.size();
  return bytes;
}

Document::Document(std::filesystem::path path_in, std::string name_in, std::string text)
    : path(std::move(path_in)),
      name(std::move(name_in)),
      memory_(std::make_shared<const std::string>(std::move(text))),
      end_(static_cast<int64_t>(memory_->size())),
      digest_(core::digest_of(*memory_)) {}

Document::Document(std::filesystem::path path_in, std::string name_in, const OpenText& text)
    : path(std::move(path_in)),
      name(std::move(name_in)),
      file_size_(static_cast<int64_t>(text.view().size())),
      end_(file_size_),
      digest_(core::digest_of(text.view())) {}

OpenText Document::open() const {
  const OpenText whole = memory_ ? in_memory(memory_) : open_file(path);
  const auto size = static_cast<int64_t>(whole.view().size());
  check(memory_ || size == file_size_, "[text] {}: has {} bytes now, expected {}: the file changed while it was in use",
        path.string(), size, file_size_);
  return {whole.view().substr(static_cast<size_t>(begin_), static_cast<size_t>(end_ - begin_)),
          std::make_shared<const OpenText>(whole)};
}

std::string Document::text() const {
  const OpenText opened = open();
  return std::string(opened.view());
}

Document Document::part(int64_t begin, int64_t end) const {
  Document part = *this;
  part.begin_ = begin_ + begin;
  part.end_ = begin_ + end;
  part.digest_ = core::digest_of(part.open().view());
  return part;
}

OpenText open_file(const std::filesystem::path& path) {
  std::error_code error;
  const uintmax_t size = std::filesystem::file_size(path, error);
  if (error || size < kMapFrom) return in_memory(std::make_shared<const std::string>(core::read_file(path)));
  const auto file = std::make_shared<const core::MappedFile>(path);
  const auto bytes = file->bytes();
  return {std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()), file};
}

}  // namespace alibi::text

namespace alibi {

std::string describe_skipped(const FilesRead& files) {
  if (files.skipped.empty()) return "";
  constexpr size_t most = 5;
  std::vector<std::string> named;
  for (size_t i = 0; i < std::min(most, files.skipped.size()); ++i) {
    named.push_back(fmt::format("{} ({})", files.skipped[i].file, files.skipped[i].reason));
  }
  const size_t more = files.skipped.size() - named.size();
  return fmt::format("{} of {} files are used; skipped: {}{}", files.files - std::ssize(files.skipped), files.files,
                     fmt::join(named, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
}

}  // namespace alibi
