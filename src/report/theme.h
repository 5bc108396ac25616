// Colours and markers. Each method looks the same in every figure.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace alibi::report {

enum class Marker : uint8_t { circle, square, triangle, diamond, down_triangle, ring };

/// Colours of a method, or of a text in the figure of one run, on white and on dark backgrounds. Lines use the palette
/// of Okabe and Ito (2008), which colour-blind readers can distinguish. Text uses darker shades with a contrast of at
/// least 4.5 to 1.
struct MethodStyle {
  std::string_view name;  ///< also names the CSS variables --NAME and --NAME-text
  std::string_view line, text;
  std::string_view dark_line, dark_text;
  Marker marker;
};

inline constexpr std::array<MethodStyle, 11> kMethodStyles = {{
    {"alibi", "#D55E00", "#B34F00", "#FF8A3D", "#FF9D5C", Marker::circle},
    {"sinusoidal", "#0072B2", "#0069A3", "#56B4E9", "#6FC0EE", Marker::square},
    {"rotary", "#009E73", "#00734F", "#2BC79A", "#2BC79A", Marker::triangle},
    {"t5", "#CC79A7", "#9C4274", "#E29BC4", "#E29BC4", Marker::diamond},
    {"learned", "#E69F00", "#8A5D00", "#F0E442", "#F0E442", Marker::down_triangle},
    {"none", "#5B6670", "#48525B", "#B4BDC6", "#B4BDC6", Marker::ring},
    {"training", "#0072B2", "#0069A3", "#56B4E9", "#6FC0EE", Marker::circle},
    {"held-out", "#D55E00", "#B34F00", "#FF8A3D", "#FF9D5C", Marker::square},
    {"other", "#56B4E9", "#1B6C98", "#0072B2", "#8FC7EA", Marker::ring},
    {"other-2", "#8A6FBF", "#62489A", "#B9A3E3", "#B9A3E3", Marker::triangle},
    {"other-3", "#7A7A00", "#5F5F00", "#C9C94A", "#C9C94A", Marker::square},
}};
inline constexpr size_t kOthers = 3;

/// A name that is not listed gets one of the last entries, chosen by its letters. "alibi@128" and "alibi, all keys"
/// look like "alibi".
constexpr const MethodStyle& style_of(std::string_view name) {
  name = name.substr(0, name.find_first_of("@,"));
  for (const MethodStyle& style : kMethodStyles) {
    if (style.name == name) return style;
  }
  size_t sum = 0;
  for (const char letter : name) sum += static_cast<unsigned char>(letter);
  return kMethodStyles[kMethodStyles.size() - kOthers + sum % kOthers];
}

/// The colours of a drawing. Inside the page they are CSS variables, which follow the reader's light or dark setting.
/// In a separate file they are fixed colours on white.
struct Theme {
  std::string ink, muted, grid, ground;
  bool variables = false;

  std::string line(std::string_view method) const {
    const MethodStyle& style = style_of(method);
    return variables ? "var(--" + std::string(style.name) + ")" : std::string(style.line);
  }
  std::string text(std::string_view method) const {
    const MethodStyle& style = style_of(method);
    return variables ? "var(--" + std::string(style.name) + "-text)" : std::string(style.text);
  }
};

inline Theme page_theme() { return {"var(--ink)", "var(--muted)", "var(--grid)", "var(--ground)", true}; }
inline Theme print_theme() { return {"#1D2125", "#5C6670", "#E1E5E8", "#FFFFFF", false}; }

}  // namespace alibi::report
