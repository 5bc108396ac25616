#include "report/axis.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <cmath>
#include <tuple>
#include <utility>

#include "core/format.h"
#include "report/svg.h"

namespace alibi::report {

namespace {

/// Formats a count as "500", "1,000", "20k" or "1.5M". Unlike format_count, it drops trailing zeros.
std::string short_count(double value) {
  if (std::abs(value) >= 1e15) return fmt::format("{:.3g}", value);
  if (std::abs(value) < 9999.5) {
    return value == std::round(value) ? core::format_integer(std::llround(value)) : fmt::format("{:.4g}", value);
  }
  std::string text = core::format_count(value);
  const char unit = text.back();
  if (text.find('.') == std::string::npos || std::isdigit(static_cast<unsigned char>(unit))) return text;
  text.pop_back();
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text + unit;
}

/// Formats a tick with as many decimals as the step between ticks needs.
std::string tick_label(double value, double step) {
  if (std::abs(value) >= 1000) return short_count(value);
  if (step < 1e-6) return fmt::format("{:.6g}", value);
  const int decimals = std::clamp(static_cast<int>(std::ceil(-std::log10(step) - 1e-9)), 0, 6);
  // A step of 2.5 times a power of ten needs one more decimal.
  const double scaled = step * std::pow(10.0, decimals);
  return fmt::format("{:.{}f}", value, std::abs(scaled - std::round(scaled)) > 1e-6 ? decimals + 1 : decimals);
}

/// Turns any two numbers into a range within [least, most] that can be drawn.
std::pair<double, double> widened(double low, double high, double least, double most) {
  for (double* end : {&low, &high}) *end = std::isnan(*end) ? 1 : std::clamp(*end, least, most);
  if (high < low) std::swap(low, high);
  const double zero = least < 0 ? kSmallestDrawn : 0;  // keeps a range of positive numbers positive
  if (high - low <= std::max(1e-9 * std::max(std::abs(low), std::abs(high)), zero)) {
    const double room = std::abs(low) <= zero ? 1 : 0.05 * std::abs(low);
    return {low - room, high + room};
  }
  return {low, high};
}

bool power_of_two(double value) { return value > 0 && std::exp2(std::round(std::log2(value))) == value; }

}  // namespace

double Axis::fraction(double value) const {
  if (!logarithmic) return (value - low) / (high - low);
  return std::log(value / low) / std::log(high / low);
}

Axis linear_axis(double low, double high, int count) {
  std::tie(low, high) = widened(low, high, -kLargestDrawn, kLargestDrawn);
  const double rough = (high - low) / count;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  double step = 10 * power;
  for (const double candidate : {5.0, 2.5, 2.0, 1.0}) {
    if (candidate * power >= rough) step = candidate * power;
  }
  Axis axis;
  const double room = 0.05 * (high - low);
  axis.low = low >= 0 && low - room < 0 ? 0 : low - room;
  axis.high = high + room;
  for (double i = std::ceil(axis.low / step - 1e-9); i * step <= axis.high; ++i) {
    const double value = i == 0 ? 0 : i * step;  // avoids "-0"
    axis.ticks.push_back({value, tick_label(value, step), ""});
  }
  return axis;
}

Axis logarithmic_axis(double low, double high) {
  std::tie(low, high) = widened(low, high, kSmallestDrawn, kLargestDrawn);
  Axis axis;
  axis.logarithmic = true;
  const double room = std::pow(high / low, 0.06);
  axis.low = low / room;
  axis.high = high * room;
  // Steps within a decade, from coarse to fine. The first set that gives enough ticks is used.
  static const std::vector<std::vector<double>> steps = {{1}, {1, 3}, {1, 2, 5}, {1, 1.5, 2, 3, 4, 5, 7}};
  for (const std::vector<double>& set : steps) {
    axis.ticks.clear();
    for (double power = std::pow(10.0, std::floor(std::log10(axis.low))); power <= axis.high; power *= 10) {
      for (const double factor : set) {
        const double value = factor * power;
        if (value < axis.low || value > axis.high) continue;
        axis.ticks.push_back({value, short_count(value), ""});
      }
    }
    if (axis.ticks.size() >= 4) break;
  }
  // With more than about eight decades, only every second, third, ... tick has a label.
  const size_t every = (axis.ticks.size() + 7) / 8;
  for (size_t i = 0; i < axis.ticks.size(); ++i) {
    if (every > 1 && i % every != 0) axis.ticks[i].label.clear();
  }
  return axis;
}

Axis value_axis(double low, double high) {
  return low > 0 && high > 4 * low ? logarithmic_axis(low, high) : linear_axis(low, high);
}

Axis length_axis(std::vector<int64_t> lengths, int64_t train_length, double pixels) {
  Axis axis;
  std::erase_if(lengths, [](int64_t length) { return length < 1; });
  axis.logarithmic = true;
  if (lengths.empty()) return {true, 1, 2, {}};
  const auto shortest = static_cast<double>(lengths.front()), longest = static_cast<double>(lengths.back());
  const double room = lengths.size() == 1 ? 2 : std::pow(longest / shortest, 0.04);
  axis.low = shortest / room;
  axis.high = longest * (lengths.size() == 1 ? 2 : std::pow(longest / shortest, 0.02));
  const auto rank = [&](int64_t length) {
    const double multiple = static_cast<double>(length) / static_cast<double>(std::max<int64_t>(train_length, 1));
    if (length == train_length) return 0;
    if (length == lengths.back()) return 1;
    if (length == lengths.front()) return 2;
    if (power_of_two(multiple)) return 3;
    return multiple == std::round(multiple) ? 4 : 5;
  };
  std::vector<int64_t> order = lengths;
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return rank(a) < rank(b); });
  std::vector<std::pair<double, double>> taken;  // [left, right] of the labels that are kept
  for (const int64_t length : order) {
    Tick tick{static_cast<double>(length), core::format_integer(length), ""};
    if (train_length > 0) tick.second = core::format_multiple(length, train_length) + "×";
    const double half = 0.5 * std::max(text_width(tick.label, 12), text_width(tick.second, 11)) + 2;
    const double at = pixels * axis.fraction(tick.value);
    const bool collides = std::any_of(taken.begin(), taken.end(), [&](const auto& other) {
      return at - half < other.second && at + half > other.first;
    });
    if (collides) {
      tick.label = tick.second = "";
    } else {
      taken.emplace_back(at - half, at + half);
    }
    axis.ticks.push_back(tick);
  }
  std::sort(axis.ticks.begin(), axis.ticks.end(), [](const Tick& a, const Tick& b) { return a.value < b.value; });
  return axis;
}

Axis position_axis(int64_t last) {
  Axis axis;
  axis.logarithmic = true;
  axis.low = 0.9;
  axis.high = 1.1 * static_cast<double>(std::max<int64_t>(last, 2));
  for (int64_t value = 1, rest = std::max<int64_t>(last, 2); rest > 0; rest /= 2) {
    axis.ticks.push_back({static_cast<double>(value), core::format_integer(value), ""});
    if (rest > 1) value *= 2;
  }
  const size_t every = axis.ticks.size() > 12 ? 2 : 1;
  for (size_t i = 0; i < axis.ticks.size(); ++i) {
    if (i % every != 0) axis.ticks[i].label.clear();
  }
  return axis;
}

}  // namespace alibi::report
