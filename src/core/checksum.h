// Checksums that show damage, not malice.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace alibi::core {

/// XXH64 with the seed 0 in 16 hexadecimal digits, as `xxh64sum` prints it.
std::string xxh64(std::string_view bytes);
/// Of what a file holds. Throws Error if it cannot be read.
std::string xxh64_of_file(const std::filesystem::path& path);

}  // namespace alibi::core
