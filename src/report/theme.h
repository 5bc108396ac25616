// Colours and markers. Each method looks the same in every figure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace alibi::report {

enum class Marker : uint8_t { circle, square, triangle, diamond, down_triangle, ring };

/// Colours of a method, or of a text in the figure of one run, on white and on dark backgrounds. Lines use the palette
/// of Okabe and Ito (2008), which colour-blind readers can distinguish. Text uses darker shades with a contrast of at
/// least 4.5 to 1.
struct MethodStyle {
  std::string name;  ///< also names the CSS variables --NAME and --NAME-text
  std::string line, text;
  std::string dark_line, dark_text;
  Marker marker;
  bool is_subject = false;  ///< drawn last and with a thicker line
};

/// The styles of the position methods, which src/model/positions declares.
const std::vector<MethodStyle>& position_styles();

/// A method's style. "rotary+alibi" has the mean of the colours of both methods and the marker of the first.
/// "alibi@128" and "alibi, all keys" look like "alibi"; "alibi, window 128" is darker on white and has rings. Other
/// names get one of a few styles, chosen by their letters.
MethodStyle style_of(std::string_view name);

/// The colours of a drawing. Inside the page they are CSS variables, which follow the reader's light or dark setting.
/// In a separate file they are fixed colours on white.
struct Theme {
  std::string ink, muted, grid, ground;
  bool variables = false;

  std::string line(std::string_view method) const {
    const MethodStyle style = style_of(method);
    return variables ? "var(--" + style.name + ")" : style.line;
  }
  std::string text(std::string_view method) const {
    const MethodStyle style = style_of(method);
    return variables ? "var(--" + style.name + "-text)" : style.text;
  }
};

inline Theme page_theme() { return {"var(--ink)", "var(--muted)", "var(--grid)", "var(--ground)", true}; }
inline Theme print_theme() { return {"#1D2125", "#5C6670", "#E1E5E8", "#FFFFFF", false}; }

}  // namespace alibi::report
