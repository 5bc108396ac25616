#include "report/theme.h"

#include <fmt/format.h>

#include <cmath>
#include <cstdlib>
#include <initializer_list>

namespace alibi::report {
namespace {

/// A name that is not listed gets one of the last entries of single_styles().
constexpr size_t kOthers = 3;

/// The mean of two colours #RRGGBB in linear light, whose contrast with white or black is between theirs.
std::string mean_colour(const std::string& a, const std::string& b) {
  std::string mean = "#";
  for (size_t at = 1; at < 7; at += 2) {
    const auto light = [at](const std::string& colour) {
      return std::pow(static_cast<double>(std::strtol(colour.substr(at, 2).c_str(), nullptr, 16)) / 255, 2.2);
    };
    mean += fmt::format("{:02X}", std::lround(255 * std::pow((light(a) + light(b)) / 2, 1 / 2.2)));
  }
  return mean;
}

MethodStyle both(const MethodStyle& a, const MethodStyle& b) {
  return {.name = a.name + "-" + b.name,
          .line = mean_colour(a.line, b.line),
          .text = mean_colour(a.text, b.text),
          .dark_line = mean_colour(a.dark_line, b.dark_line),
          .dark_text = mean_colour(a.dark_text, b.dark_text),
          .marker = a.marker};
}

/// All styles that names without '+' can have.
std::vector<MethodStyle> single_styles() {
  std::vector<MethodStyle> styles = position_styles();
  for (const MethodStyle& style : std::initializer_list<MethodStyle>{
           {"none", "#5B6670", "#48525B", "#B4BDC6", "#B4BDC6", Marker::ring},
           {"training", "#0072B2", "#0069A3", "#56B4E9", "#6FC0EE", Marker::circle},
           {"held-out", "#D55E00", "#B34F00", "#FF8A3D", "#FF9D5C", Marker::square},
           {"other", "#56B4E9", "#1B6C98", "#0072B2", "#8FC7EA", Marker::ring},
           {"other-2", "#8A6FBF", "#62489A", "#B9A3E3", "#B9A3E3", Marker::triangle},
           {"other-3", "#7A7A00", "#5F5F00", "#C9C94A", "#C9C94A", Marker::square},
       }) {
    styles.push_back(style);
  }
  return styles;
}

}  // namespace

MethodStyle style_of(std::string_view name) {
  if (const size_t window = name.find(", window "); window != std::string_view::npos) {
    const MethodStyle ink{.name = "window",
                          .line = "#000000",
                          .text = "#000000",
                          .dark_line = "#FFFFFF",
                          .dark_text = "#FFFFFF",
                          .marker = Marker::ring};
    MethodStyle style = both(style_of(name.substr(0, window)), ink);
    style.marker = ink.marker;
    return style;
  }
  name = name.substr(0, name.find_first_of("@,"));
  const size_t first = name.find('+');
  if (first != std::string_view::npos) return both(style_of(name.substr(0, first)), style_of(name.substr(first + 1)));
  const std::vector<MethodStyle> styles = single_styles();
  size_t sum = 0;
  for (const char letter : name) sum += static_cast<unsigned char>(letter);
  for (const MethodStyle& style : styles) {
    if (style.name == name) return style;
  }
  return styles[styles.size() - kOthers + sum % kOthers];
}

}  // namespace alibi::report
