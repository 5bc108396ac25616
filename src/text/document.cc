#include "text/document.h"

#include <cstring>
#include <system_error>
#include <utility>

#include "core/check.h"
#include "core/files.h"
#include "core/random.h"
#include "text/hash.h"

namespace alibi::text {
namespace {

/// Smaller files are read: there may be more of them than a process may map.
constexpr uintmax_t kMapFrom = uintmax_t{1} << 20;

OpenText in_memory(const std::shared_ptr<const std::string>& text) { return {*text, text}; }

}  // namespace

Digest digest_of(std::string_view bytes) {
  uint64_t first = kFnvStart, second = bytes.size();
  size_t at = 0;
  for (; at + 8 <= bytes.size(); at += 8) {
    uint64_t word;
    std::memcpy(&word, bytes.data() + at, 8);
    first = (first ^ word) * kFnvPrime;
    second = (second + (word ^ (word >> 32))) * 0x9E3779B97F4A7C15ull;
    second ^= second >> 29;
  }
  const std::string_view rest = bytes.substr(at);
  return {core::mix(fnv1a(rest, first), 1), core::mix(fnv1a(rest, second), 2)};
}

Document::Document(std::filesystem::path path_in, std::string name_in, std::string text)
    : path(std::move(path_in)),
      name(std::move(name_in)),
      memory_(std::make_shared<const std::string>(std::move(text))),
      end_(static_cast<int64_t>(memory_->size())),
      digest_(digest_of(*memory_)) {}

Document::Document(std::filesystem::path path_in, std::string name_in, const OpenText& text)
    : path(std::move(path_in)),
      name(std::move(name_in)),
      file_size_(static_cast<int64_t>(text.view().size())),
      end_(file_size_),
      digest_(digest_of(text.view())) {
  core::check_mapped(text.view().data());
}

OpenText Document::open() const {
  const OpenText whole = memory_ ? in_memory(memory_) : open_file(path);
  const auto size = static_cast<int64_t>(whole.view().size());
  check(memory_ || size == file_size_, "[text] {}: it has {} bytes, and had {} before: it changed while it was in use",
        path.string(), size, file_size_);
  return {whole.view().substr(static_cast<size_t>(begin_), static_cast<size_t>(end_ - begin_)),
          std::make_shared<const OpenText>(whole)};
}

std::string Document::text() const {
  const OpenText opened = open();
  std::string copy(opened.view());
  core::check_mapped(opened.view().data());
  return copy;
}

Document Document::part(int64_t begin, int64_t end) const {
  Document part = *this;
  part.begin_ = begin_ + begin;
  part.end_ = begin_ + end;
  const OpenText text = part.open();
  part.digest_ = digest_of(text.view());
  core::check_mapped(text.view().data());
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
