#include "text/token_file.h"

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/check.h"
#include "core/files.h"
#include "text/hash.h"

namespace alibi::text {
namespace {

static_assert(std::endian::native == std::endian::little, "token files are little-endian and mapped as they are");

/// The header as it lies in the file.
struct FileHeader {
  char magic[8];
  uint32_t version;
  uint32_t token_width;  // bytes of an id
  TokenFileHeader header;
  uint64_t header_checksum;  // FNV-1a of the bytes before it
};
static_assert(sizeof(FileHeader) == 64 && offsetof(FileHeader, header) == 16 &&
              offsetof(TokenFileHeader, vocab_size) == 32);

constexpr std::string_view kMagic = "ALIBITOK";
constexpr uint32_t kTokenFileVersion = 1;

uint64_t header_checksum(const FileHeader& layout) {
  return fnv1a({reinterpret_cast<const char*>(&layout), offsetof(FileHeader, header_checksum)});
}

std::string to_bytes(const TokenFileHeader& header) {
  FileHeader layout{};
  std::memcpy(layout.magic, kMagic.data(), kMagic.size());
  layout.version = kTokenFileVersion;
  layout.token_width = sizeof(int32_t);
  layout.header = header;
  layout.header_checksum = header_checksum(layout);
  return {reinterpret_cast<const char*>(&layout), sizeof layout};
}

}  // namespace

uint64_t checksum_of(std::span<const int32_t> ids, uint64_t hash) {
  for (const int32_t id : ids) hash = (hash ^ static_cast<uint32_t>(id)) * kFnvPrime;
  return hash;
}

TokenFileHeader write_token_file(const std::filesystem::path& path, const Tokenizer& tokenizer,
                                 const std::function<void(const AppendTokens& append)>& write) {
  TokenFileHeader header;
  header.vocab_size = tokenizer.vocab_size();
  header.end_of_text = tokenizer.end_of_text();
  header.fingerprint = tokenizer.fingerprint();
  header.checksum = kFnvStart;
  core::write_file_with_header(path, sizeof(FileHeader), [&](const std::function<void(std::string_view)>& append) {
    write([&](std::span<const int32_t> ids, int64_t bytes) {
      append({reinterpret_cast<const char*>(ids.data()), ids.size_bytes()});
      header.tokens += static_cast<int64_t>(ids.size());
      header.bytes += bytes;
      header.checksum = checksum_of(ids, header.checksum);
    });
    return to_bytes(header);
  });
  return header;
}

TokenFile read_token_file(const std::filesystem::path& path) {
  const auto file = std::make_shared<const core::MappedFile>(path);
  const std::span<const std::byte> bytes = file->bytes();
  const std::string where = path.string();
  check(bytes.size() >= sizeof(FileHeader), "[tokens] {}: {} bytes, a token file has at least {}", where, bytes.size(),
        sizeof(FileHeader));
  FileHeader layout;
  std::memcpy(&layout, bytes.data(), sizeof layout);
  check(std::string_view(layout.magic, sizeof layout.magic) == kMagic, "[tokens] {}: is not a token file of alibi",
        where);
  check(layout.version == kTokenFileVersion, "[tokens] {}: version {}, expected {}", where, layout.version,
        kTokenFileVersion);
  check(layout.header_checksum == header_checksum(layout), "[tokens] {}: the header is damaged", where);
  check(layout.token_width == sizeof(int32_t), "[tokens] {}: ids of {} bytes, expected {}", where, layout.token_width,
        sizeof(int32_t));
  const size_t payload = bytes.size() - sizeof(FileHeader);
  const TokenFileHeader& header = layout.header;
  check(payload % sizeof(int32_t) == 0 && static_cast<uint64_t>(header.tokens) == payload / sizeof(int32_t),
        "[tokens] {}: {} bytes of ids, the header states {} ids of {} bytes", where, payload, header.tokens,
        sizeof(int32_t));
  check(header.vocab_size > 0 && header.end_of_text >= 0 && header.end_of_text < header.vocab_size && header.bytes >= 0,
        "[tokens] {}: a vocabulary of {} with the end of text {}, {} bytes of text", where, header.vocab_size,
        header.end_of_text, header.bytes);
  TokenFile result;
  result.header = header;
  result.stream = {{reinterpret_cast<const int32_t*>(bytes.data() + sizeof(FileHeader)), payload / sizeof(int32_t)},
                   file};
  return result;
}

namespace {

/// The index of the first id outside the vocabulary.
std::optional<size_t> first_outside(std::span<const int32_t> ids, int32_t vocab_size) {
  const auto outside = [&](int32_t id) { return static_cast<uint32_t>(id) >= static_cast<uint32_t>(vocab_size); };
  bool found = false;
  for (const int32_t id : ids)
    found |= outside(id);  // checking all ids at once is many times as fast as checking them one by one
  if (!found) return {};
  return static_cast<size_t>(std::find_if(ids.begin(), ids.end(), outside) - ids.begin());
}

}  // namespace

void check_tokens(const TokenFile& file, const std::filesystem::path& path,
                  const std::function<void(double)>& progress) {
  constexpr size_t block = size_t{1} << 20;
  const std::span<const int32_t> ids = file.stream.tokens;
  uint64_t hash = kFnvStart;
  for (size_t begin = 0; begin < ids.size(); begin += block) {
    const std::span<const int32_t> part = ids.subspan(begin, std::min(block, ids.size() - begin));
    if (const auto bad = first_outside(part, file.header.vocab_size)) {
      fail("[tokens] {}: token {} is {}, expected 0 to {}: the file is damaged", path.string(), begin + *bad,
           part[*bad], file.header.vocab_size - 1);
    }
    hash = checksum_of(part, hash);
    if (progress) progress(static_cast<double>(begin + part.size()) / static_cast<double>(ids.size()));
  }
  check(hash == file.header.checksum, "[tokens] {}: the checksum is {:016x}, expected {:016x}: the file is damaged",
        path.string(), hash, file.header.checksum);
}

}  // namespace alibi::text
