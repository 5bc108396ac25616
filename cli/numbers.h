// Parses numbers of the command line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "formats/option.h"

namespace alibi::cli {

/// These functions return what is wrong, or "", as the parser requires.

/// Parses a whole number of at least 0. 5k and 2M are accepted.
std::string read_count(std::string_view word, const formats::OptionRange& range, int64_t& value);
std::string read_number(std::string_view word, const formats::OptionRange& range, double& value);
/// Parses a whole number of bytes, of at least `least`: 1048576, 512KiB, 256MiB, 2GiB.
std::string read_bytes(std::string_view word, int64_t& value, int64_t least = 1);
/// Parses a rate in bits per second and a delay: 10Gbit; 1Gbit,1ms; 100Mbit,50us.
std::string read_link(std::string_view word, double& bytes_per_second, double& delay);
/// Parses any 64-bit number.
std::string read_seed(std::string_view word, uint64_t& value);

}  // namespace alibi::cli
