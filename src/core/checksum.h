// Checksums and digests by xxHash. They detect damage and compare content; they do not protect against forgery.
#pragma once

#include <compare>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>

namespace alibi::core {

/// XXH64 with the seed 0 in 16 hexadecimal digits, as `xxh64sum` prints it. Checkpoints store it.
std::string xxh64(std::string_view bytes);
/// xxh64() of the content of a file. Throws Error if the file cannot be read.
std::string xxh64_of_file(const std::filesystem::path& path);

/// XXH3 digest of 128 bits. It is never stored in a file.
struct Digest {
  uint64_t high = 0, low = 0;
  auto operator<=>(const Digest&) const = default;  // NOLINT(modernize-use-nullptr): the check misreads the operator
};
Digest digest_of(std::string_view bytes);

}  // namespace alibi::core
