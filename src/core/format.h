// Formats numbers for display, and reads them.
#pragma once

#include <charconv>
#include <cstdint>
#include <string>
#include <string_view>
#include <system_error>

namespace alibi::core {

/// "0.8 s", "42 s", "4m 51s", "2h 05m", "3d 04h"; "?" if the time is not finite.
std::string format_duration(double seconds);
/// Binary units, three digits: "512 B", "1.21 GiB".
std::string format_bytes(int64_t bytes);
/// Three digits and a decimal unit: "999", "12.3k", "1.23M", "4.50G", "1.23e+15"; "?" if not finite.
std::string format_count(double value);
/// All digits in groups of three: "65,536".
std::string format_integer(int64_t value);
/// Four significant digits: "5.752", "12.71", "123.4", "12,345", "1.23e+07"; "-" if not finite.
std::string format_perplexity(double value);
/// With this number of decimals, "1.8789"; from ten million on "1.23e+07"; "-" if not finite.
std::string format_decimal(double value, int decimals);
/// Bits per byte: "1.8789".
std::string format_bits(double value);
/// A share as a percentage without the % sign: "4.4", "44", "1.2e+09"; "-" if not finite. With `sign`: "+4.4", always
/// with one decimal.
std::string format_percent(double share, bool sign = false);
/// Ratio to the training length: "8", "1.25".
std::string format_multiple(int64_t length, int64_t train_length);

/// A factor with about three significant digits: "0.98", "2.21", "12.3", "1,234", "1.2e+07".
std::string format_ratio(double value);

/// Reads a text that is a number as a whole. Returns false for any other text, and then `value` is unspecified.
template <class T>
bool parse_number(std::string_view text, T& value) {
  const auto [end, problem] = std::from_chars(text.data(), text.data() + text.size(), value);
  return problem == std::errc() && end == text.data() + text.size();
}

/// Returns the text itself if `from` is empty.
std::string replace_all(std::string_view text, std::string_view from, std::string_view to);

}  // namespace alibi::core
