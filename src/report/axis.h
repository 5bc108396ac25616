// Scales of a chart and the positions of their ticks.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace alibi::report {

struct Tick {
  double value = 0;
  std::string label;   ///< empty for a tick without a label
  std::string second;  ///< a second line of the label, e.g. "8×"
};

/// Values beyond these limits are not drawn, because an axis over the whole range of a double would show nothing else.
inline constexpr double kSmallestDrawn = 1e-30, kLargestDrawn = 1e30;

struct Axis {
  bool logarithmic = false;
  double low = 0, high = 1;  ///< low < high; both are positive on a logarithmic axis
  std::vector<Tick> ticks;   ///< rising, within [low, high]

  /// Position of a value on the axis: 0 at low, 1 at high.
  double fraction(double value) const;
};

/// The functions below accept any numbers, including NaN and infinities. The returned axis lies within the limits above
/// and has a bounded number of ticks.

/// Linear axis with about `count` round steps (1, 2, 2.5 or 5 times a power of ten). The range is widened slightly so
/// that the extreme values do not touch the frame.
Axis linear_axis(double low, double high, int count = 6);

/// Logarithmic axis with ticks at powers of ten, and between them if the range is short.
Axis logarithmic_axis(double low, double high);

/// For a quantity such as perplexity: logarithmic where the largest value is more than four times the smallest.
Axis value_axis(double low, double high);

/// Logarithmic axis of lengths in tokens, with a tick at each positive length. Labels that would overlap within
/// `pixels` are dropped. The training length, both ends and the training length times powers of two are kept first.
Axis length_axis(std::vector<int64_t> lengths, int64_t train_length, double pixels);

/// Logarithmic axis of positions 1 to last, with ticks at powers of two.
Axis position_axis(int64_t last);

}  // namespace alibi::report
