// Scales of a chart and where their ticks stand.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace alibi::report {

struct Tick {
  double value = 0;
  std::string label;   ///< empty: a tick without text
  std::string second;  ///< a second line of text, e.g. "8×"
};

/// Values beyond these limits are not drawn, because an axis over the whole range of a double would show nothing else.
inline constexpr double kSmallestDrawn = 1e-30, kLargestDrawn = 1e30;

struct Axis {
  bool logarithmic = false;
  double low = 0, high = 1;  ///< low < high; both positive if logarithmic
  std::vector<Tick> ticks;   ///< rising, within [low, high]

  /// Where a value lies: 0 at low, 1 at high.
  double fraction(double value) const;
};

/// Every function below accepts any numbers, including NaN and infinities. Its axis ends within the limits above, and
/// the number of its ticks is bounded.

/// About `count` round steps (1, 2, 2.5, 5 times a power of ten). low and high are widened a little so that the extreme
/// values do not lie on the frame.
Axis linear_axis(double low, double high, int count = 6);

/// Powers of ten, with steps between them where the range is short.
Axis logarithmic_axis(double low, double high);

/// For a quantity such as perplexity: logarithmic where the largest value is more than four times the smallest.
Axis value_axis(double low, double high);

/// Lengths in tokens on a logarithmic scale, with a tick at each positive one. Labels that would collide on `pixels`
/// are left out; the training length, both ends and its multiples by powers of two are kept first.
Axis length_axis(std::vector<int64_t> lengths, int64_t train_length, double pixels);

/// Positions 1 to last on a logarithmic scale, ticks at powers of two.
Axis position_axis(int64_t last);

}  // namespace alibi::report
