#include "embed_output.h"

#include <fstream>
#include <utility>

#include "core/check.h"

namespace alibi::cli {
namespace {

constexpr int64_t kHeaderBytes = 64;

std::string header_of(const std::string& identity) {
  std::string header = "alibi embed: rows of float32 so far, " + identity;
  header.resize(kHeaderBytes - 1, ' ');
  return header + '\n';
}

int64_t row_bytes(int64_t width) { return width * static_cast<int64_t>(sizeof(float)); }

}  // namespace

EmbedRows::EmbedRows(const std::filesystem::path& out, const std::string& identity, int64_t width)
    : path_(out.string() + ".part"), width_(width) {
  const std::string header = header_of(identity);
  if (core::path_exists(path_)) {
    std::string found(kHeaderBytes, '\0');
    std::ifstream(path_, std::ios::binary).read(found.data(), kHeaderBytes);
    if (found == header) {
      rows_ = (static_cast<int64_t>(std::filesystem::file_size(path_)) - kHeaderBytes) / row_bytes(width);
    } else {
      std::filesystem::remove(path_);
    }
  }
  const bool is_new = !core::path_exists(path_);
  if (!is_new) truncate(rows_);
  file_ = std::make_unique<core::AppendFile>(path_);
  if (is_new) file_->append(header);
}

void EmbedRows::truncate(int64_t rows) {
  rows_ = rows;
  std::filesystem::resize_file(path_, static_cast<uintmax_t>(kHeaderBytes + rows * row_bytes(width_)));
}

void EmbedRows::append(const Tensor& rows) {
  file_->append({static_cast<const char*>(rows.raw()), static_cast<size_t>(rows.bytes())});
  rows_ += rows.size(0);
}

Tensor EmbedRows::all() {
  if (rows_ == 0) return Tensor({0, width_});
  auto map = std::make_shared<core::MappedFile>(path_);
  auto* const data = const_cast<std::byte*>(map->bytes().data() + kHeaderBytes);
  return Tensor::view(std::shared_ptr<void>(std::move(map), data), data, {rows_, width_}, DType::float32);
}

void EmbedRows::remove() {
  file_.reset();
  std::filesystem::remove(path_);
}

}  // namespace alibi::cli
