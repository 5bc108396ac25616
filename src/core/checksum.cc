#include "core/checksum.h"

#include <fmt/format.h>

#define XXH_INLINE_ALL
#include <xxhash.h>

#include "core/files.h"

namespace alibi::core {

std::string xxh64(std::string_view bytes) { return fmt::format("{:016x}", XXH64(bytes.data(), bytes.size(), 0)); }

Digest digest_of(std::string_view bytes) {
  const XXH128_hash_t hash = XXH3_128bits(bytes.data(), bytes.size());
  return {hash.high64, hash.low64};
}

std::string xxh64_of_file(const std::filesystem::path& path) {
  const MappedFile file(path);
  return xxh64({reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()});
}

}  // namespace alibi::core
