#include "core/format.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>

namespace alibi::core {

namespace {

/// Formats three significant digits with a unit. `step` is the factor from one unit to the next.
template <size_t N>
std::string scaled(double value, double step, const std::array<std::string_view, N>& units) {
  size_t unit = 0;
  // 999.5 would be rounded to 1000. "1.00" of the next unit is easier to read.
  while (std::abs(value) >= std::min(step, 999.5) && unit + 1 < N) {
    value /= step;
    ++unit;
  }
  const int decimals = unit == 0 || std::abs(value) >= 99.95 ? 0 : std::abs(value) >= 9.995 ? 1 : 2;
  return fmt::format("{:.{}f}{}", value, decimals, units[unit]);
}

}  // namespace

std::string format_duration(double seconds) {
  if (!std::isfinite(seconds) || seconds < 0 || seconds > 1e9) return "?";
  if (seconds < 9.95) return fmt::format("{:.1f} s", seconds);
  const auto total = static_cast<int64_t>(std::llround(seconds));
  if (total < 60) return fmt::format("{} s", total);
  if (total < 3600) return fmt::format("{}m {:02}s", total / 60, total % 60);
  if (total < 86400) return fmt::format("{}h {:02}m", total / 3600, total % 3600 / 60);
  return fmt::format("{}d {:02}h", total / 86400, total % 86400 / 3600);
}

std::string format_bytes(int64_t bytes) {
  static constexpr std::array<std::string_view, 6> units = {" B", " KiB", " MiB", " GiB", " TiB", " PiB"};
  return scaled(static_cast<double>(bytes), 1024, units);
}

std::string format_count(double value) {
  if (!std::isfinite(value)) return "?";
  static constexpr std::array<std::string_view, 5> units = {"", "k", "M", "G", "T"};
  if (std::abs(value) >= 999.5e12) return fmt::format("{:.2e}", value);
  // A small number keeps its fraction: "0.25", "3.5".
  if (value != std::round(value) && std::abs(value) < 99.95) return fmt::format("{:.3g}", value);
  return scaled(value, 1000, units);
}

std::string format_integer(int64_t value) {
  std::string digits = fmt::format("{}", value);
  const auto first = static_cast<ptrdiff_t>(value < 0);
  for (ptrdiff_t at = static_cast<ptrdiff_t>(digits.size()) - 3; at > first; at -= 3) {
    digits.insert(static_cast<size_t>(at), 1, ',');
  }
  return digits;
}

std::string format_decimal(double value, int decimals) {
  if (!std::isfinite(value)) return "-";
  return std::abs(value) < 1e7 ? fmt::format("{:.{}f}", value, decimals) : fmt::format("{:.2e}", value);
}

std::string format_bits(double value) { return format_decimal(value, 4); }

std::string format_percent(double share, bool sign) {
  const double value = 100 * share;
  if (!std::isfinite(value)) return "-";
  if (std::abs(value) >= 1e7) return sign ? fmt::format("{:+.1e}", value) : fmt::format("{:.1e}", value);
  if (sign) return fmt::format("{:+.1f}", value);
  return std::abs(value) < 9.95 ? fmt::format("{:.1f}", value) : fmt::format("{:.0f}", value);
}

std::string format_perplexity(double value) {
  if (!std::isfinite(value)) return "-";
  if (value >= 999999.5) return fmt::format("{:.2e}", value);
  if (value >= 999.95) return format_integer(std::llround(value));
  return fmt::format("{:.{}f}", value, value >= 99.995 ? 1 : value >= 9.9995 ? 2 : 3);
}

std::string format_multiple(int64_t length, int64_t train_length) {
  if (train_length <= 0) return "?";
  return fmt::format("{:.3g}", static_cast<double>(length) / static_cast<double>(train_length));
}

std::string format_ratio(double value) {
  if (!std::isfinite(value)) return "-";
  if (std::abs(value) >= 999999.5) return fmt::format("{:.1e}", value);
  if (value >= 99.95) return format_integer(std::llround(value));
  return fmt::format("{:.{}f}", value, value >= 9.995 ? 1 : 2);
}

std::string replace_all(std::string_view text, std::string_view from, std::string_view to) {
  std::string result;
  for (size_t at; !from.empty() && (at = text.find(from)) != text.npos; text.remove_prefix(at + from.size())) {
    result.append(text.substr(0, at)).append(to);
  }
  result += text;
  return result;
}

}  // namespace alibi::core
