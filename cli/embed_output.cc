#include "embed_output.h"

#include <string_view>
#include <system_error>
#include <utility>

#include "core/check.h"
#include "core/checksum.h"

namespace alibi::cli {
namespace {

constexpr int64_t kHeaderBytes = 64;
constexpr int64_t kChecksumBytes = 16;
constexpr std::string_view kWriter = "alibi embed: rows ";

std::string header_of(const std::string& identity) {
  std::string header = fmt::format("{}with checksums, {}", kWriter, identity);
  header.resize(kHeaderBytes - 1, ' ');
  return header + '\n';
}

std::string checksum_of(std::string_view row, int64_t number) {
  return core::xxh64(fmt::format("{} {}", number, core::xxh64(row)));
}

}  // namespace

EmbedRows::EmbedRows(const std::filesystem::path& out, const std::string& identity, int64_t width)
    : path_(path_of(out)), width_(width), lock_(path_, "wait for it, or choose another file with --out") {
  try {
    open(header_of(identity));
  } catch (...) {
    std::error_code ignored;
    if (std::filesystem::file_size(path_, ignored) == 0) std::filesystem::remove(path_, ignored);
    throw;
  }
}

EmbedRows::~EmbedRows() {
  std::error_code ignored;
  if (file_ && rows_ == 0) std::filesystem::remove(path_, ignored);
}

int64_t EmbedRows::row_bytes() const { return width_ * static_cast<int64_t>(sizeof(float)) + kChecksumBytes; }

void EmbedRows::open(const std::string& header) {
  {
    const core::MappedFile map(path_);
    const std::string_view found(reinterpret_cast<const char*>(map.bytes().data()), map.bytes().size());
    const bool is_unfinished_header = found.size() < header.size() && header.starts_with(found);
    check(found.starts_with(kWriter) || is_unfinished_header,
          "[embed] {} was not written by `alibi embed`; move it away, or choose another file with --out",
          path_.string());
    check(found.starts_with(header) || is_unfinished_header,
          "[embed] {} has the rows of an interrupted command with another model, text or option; repeat that command "
          "to finish it, or remove the file",
          path_.string());
    const std::string_view rows = is_unfinished_header ? "" : found.substr(header.size());
    const auto size = static_cast<size_t>(row_bytes()), floats = size - kChecksumBytes;
    const auto count = static_cast<int64_t>(rows.size() / size);
    const auto is_intact = [&](int64_t i) {
      const std::string_view row = rows.substr(static_cast<size_t>(i) * size, size);
      return row.substr(floats) == checksum_of(row.substr(0, floats), i);
    };
    while (rows_ < count && is_intact(rows_)) ++rows_;
    damaged_ = count - rows_;
  }
  file_ = std::make_unique<core::AppendFile>(path_);
  if (rows_ > 0) return truncate(rows_);
  std::filesystem::resize_file(path_, 0);
  file_->append(header);
}

void EmbedRows::truncate(int64_t rows) {
  rows_ = rows;
  std::filesystem::resize_file(path_, static_cast<uintmax_t>(kHeaderBytes + rows * row_bytes()));
}

void EmbedRows::append(const Tensor& rows) {
  std::string bytes;
  bytes.reserve(static_cast<size_t>(rows.size(0) * row_bytes()));
  for (int64_t i = 0; i < rows.size(0); ++i) {
    const Tensor row = rows.slice(0, i, i + 1);
    const std::string_view floats(static_cast<const char*>(row.raw()), static_cast<size_t>(row.bytes()));
    bytes.append(floats).append(checksum_of(floats, rows_ + i));
  }
  file_->append(bytes);
  file_->sync();
  rows_ += rows.size(0);
}

Tensor EmbedRows::all() {
  if (rows_ == 0) return Tensor({0, width_});
  auto map = std::make_shared<core::MappedFile>(path_);
  auto* const data = const_cast<std::byte*>(map->bytes().data() + kHeaderBytes);
  const int64_t stride = row_bytes() / static_cast<int64_t>(sizeof(float));
  const Tensor rows = Tensor::view(std::shared_ptr<void>(std::move(map), data), data, {rows_, stride}, DType::float32);
  return rows.slice(1, 0, width_);
}

void EmbedRows::remove() {
  file_.reset();
  std::filesystem::remove(path_);
}

}  // namespace alibi::cli
