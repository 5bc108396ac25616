// A small SVG writer: collects shapes and returns one well-formed element.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "report/theme.h"

namespace alibi::report {

struct SvgPoint {
  double x = 0, y = 0;
};

struct Stroke {
  std::string color;
  double width = 1;
  std::string dashes;  ///< e.g. "4 3"; empty for a solid line
};

enum class Anchor : uint8_t { start, middle, end };

struct TextStyle {
  std::string color;
  double size = 12;
  Anchor anchor = Anchor::start;
  bool bold = false;
  std::string suffix = {};  ///< follows on the same line in normal weight
  std::string suffix_color = {};
};

/// Coordinates are pixels from the top left. They must be finite; otherwise an Error is thrown, so "nan" never reaches
/// a file.
class Svg {
 public:
  /// `id` must be unique in the page. Screen readers read the title and the description.
  Svg(std::string_view id, double width, double height, std::string_view title, std::string_view description);

  void line(SvgPoint from, SvgPoint to, const Stroke& stroke);
  void path(const std::vector<SvgPoint>& points, const Stroke& stroke);
  /// Fills the polygon with these corners.
  void area(const std::vector<SvgPoint>& points, std::string_view fill, double opacity);
  void rectangle(SvgPoint top_left, double width, double height, std::string_view fill);
  /// Draws a marker of about `size` pixels. The tooltip may be empty.
  void marker(Marker shape, SvgPoint at, double size, std::string_view color, std::string_view ground,
              std::string_view tooltip = {});
  void cross(SvgPoint at, double size, const Stroke& stroke);
  void text(SvgPoint at, std::string_view content, const TextStyle& style);

  /// Returns the element. Call it only once.
  std::string finish() &&;

 private:
  std::string out_;
};

/// Estimated width of a line of text in the fonts of the figures. It errs on the wide side.
double text_width(std::string_view text, double size, bool bold = false);

}  // namespace alibi::report
