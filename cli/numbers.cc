#include "numbers.h"

#include <fmt/format.h>

#include <cmath>
#include <initializer_list>
#include <utility>

#include "core/format.h"
#include "train/described.h"

namespace alibi::cli {

std::string read_count(std::string_view word, const formats::OptionRange& range, int64_t& value) {
  std::string_view digits = word;
  int64_t unit = 1, found = 0;
  if (digits.ends_with('k') || digits.ends_with('M')) {
    unit = digits.ends_with('k') ? 1'000 : 1'000'000;
    digits.remove_suffix(1);
  }
  const bool is_number = !digits.empty() && digits.find_first_not_of("0123456789") == std::string_view::npos;
  const bool fits = core::parse_number(digits, found) && found <= INT64_MAX / unit;
  if (is_number && !fits && !range.most) {
    return fmt::format("found '{}', expected a whole number of at most {}", word, INT64_MAX);
  }
  if (!fits || found < 0 || !formats::is_in(range, found * unit)) {
    return fmt::format("found '{}', expected a whole number, {} (5k and 2M are accepted)", word,
                       formats::text_of(range));
  }
  value = found * unit;
  return {};
}

std::string read_number(std::string_view word, const formats::OptionRange& range, double& value) {
  double found = 0;
  if (!core::parse_number(word, found) || !formats::is_in(range, found)) {
    return fmt::format("found '{}', expected a number, {}", word, formats::text_of(range));
  }
  value = found;
  return {};
}

std::string read_bytes(std::string_view word, int64_t& value, int64_t least) {
  static constexpr std::pair<std::string_view, int> units[] = {{"KiB", 10}, {"MiB", 20}, {"GiB", 30}, {"TiB", 40}};
  std::string_view digits = word;
  int64_t unit = 1, found = 0;
  for (const auto& [name, power] : units) {
    if (!word.ends_with(name)) continue;
    digits.remove_suffix(name.size());
    unit = int64_t{1} << power;
  }
  if (!core::parse_number(digits, found) || found < least || found > INT64_MAX / unit) {
    return fmt::format("found '{}', expected a number of bytes such as 1048576, 512KiB, 256MiB or 2GiB", word);
  }
  value = found * unit;
  return {};
}

std::string read_link(std::string_view word, double& bytes_per_second, double& delay) {
  using Units = std::initializer_list<std::pair<std::string_view, double>>;
  // The first unit that the text ends with counts.
  const auto read = [](std::string_view text, const Units& units, double& value) {
    for (const auto& [name, unit] : units) {
      double number = 0;
      if (!text.ends_with(name)) continue;
      if (!core::parse_number(text.substr(0, text.size() - name.size()), number) || !std::isfinite(number))
        return false;
      value = number * unit;
      return value >= 0;
    }
    return false;
  };
  const size_t comma = word.find(',');
  double rate = 0, later = 0;
  const bool is_rate = read(word.substr(0, comma), {{"Gbit", 1e9 / 8}, {"Mbit", 1e6 / 8}}, rate) && rate > 0;
  const bool is_delay =
      comma == std::string_view::npos || read(word.substr(comma + 1), {{"ms", 1e-3}, {"us", 1e-6}, {"s", 1}}, later);
  if (!is_rate || !is_delay) {
    return fmt::format("found '{}', expected a rate, and perhaps a delay, such as 10Gbit or 1Gbit,1ms", word);
  }
  bytes_per_second = rate;
  delay = later;
  return {};
}

std::string read_seed(std::string_view word, uint64_t& value) {
  return core::parse_number(word, value)
             ? ""
             : fmt::format("found '{}', expected a whole number from 0 to {}", word, UINT64_MAX);
}

}  // namespace alibi::cli
