#include "report/svg.h"

#include <cmath>

#include "core/check.h"
#include "report/markup.h"
#include "text/tokenizers/unicode.h"

namespace alibi::report {

namespace {

/// Formats a coordinate with at most two decimals.
std::string svg_number(double value) {
  check(std::isfinite(value) && std::abs(value) < 1e7, "[svg] coordinate is {}, expected a finite number", value);
  std::string text = fmt::format("{:.2f}", value);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.back() == '.') text.pop_back();
  return text == "-0" ? "0" : text;
}

std::string stroke_attributes(const Stroke& stroke) {
  std::string text = fmt::format(R"(stroke="{}" stroke-width="{}")", stroke.color, svg_number(stroke.width));
  if (!stroke.dashes.empty()) text += fmt::format(R"( stroke-dasharray="{}")", stroke.dashes);
  return text;
}

/// Corners of a marker of size 1 around the origin.
std::vector<SvgPoint> corners(Marker shape) {
  switch (shape) {
    case Marker::square:
      return {{-.45, -.45}, {.45, -.45}, {.45, .45}, {-.45, .45}};
    case Marker::triangle:
      return {{0, -.6}, {.58, .42}, {-.58, .42}};
    case Marker::down_triangle:
      return {{0, .6}, {.58, -.42}, {-.58, -.42}};
    case Marker::diamond:
      return {{0, -.64}, {.64, 0}, {0, .64}, {-.64, 0}};
    case Marker::circle:
    case Marker::ring:
      break;
  }
  return {};
}

}  // namespace

Svg::Svg(std::string_view id, double width, double height, std::string_view title, std::string_view description) {
  out_ = fmt::format(
      R"(<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {0} {1}" width="{0}" height="{1}" role="img" )"
      R"(aria-labelledby="{2}-title {2}-desc" )"
      R"(font-family="system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif">)",
      svg_number(width), svg_number(height), escape_markup(id));
  out_ += fmt::format("\n<title id=\"{0}-title\">{1}</title>\n<desc id=\"{0}-desc\">{2}</desc>\n", escape_markup(id),
                      escape_markup(title), escape_markup(description));
}

void Svg::line(SvgPoint from, SvgPoint to, const Stroke& stroke) {
  out_ += fmt::format(R"(<line x1="{}" y1="{}" x2="{}" y2="{}" {}/>)", svg_number(from.x), svg_number(from.y),
                      svg_number(to.x), svg_number(to.y), stroke_attributes(stroke));
  out_ += "\n";
}

void Svg::path(const std::vector<SvgPoint>& points, const Stroke& stroke) {
  if (points.size() < 2) return;
  std::string data;
  for (const SvgPoint& point : points) {
    data += fmt::format("{}{} {}", data.empty() ? "M" : "L", svg_number(point.x), svg_number(point.y));
  }
  out_ += fmt::format(R"(<path d="{}" fill="none" stroke-linejoin="round" stroke-linecap="round" {}/>)", data,
                      stroke_attributes(stroke));
  out_ += "\n";
}

void Svg::area(const std::vector<SvgPoint>& points, std::string_view fill, double opacity) {
  std::string corners;
  for (const SvgPoint& point : points) {
    corners += fmt::format("{}{},{}", corners.empty() ? "" : " ", svg_number(point.x), svg_number(point.y));
  }
  out_ += fmt::format(R"(<polygon points="{}" fill="{}" fill-opacity="{}"/>)", corners, fill, svg_number(opacity));
  out_ += "\n";
}

void Svg::rectangle(SvgPoint top_left, double width, double height, std::string_view fill) {
  out_ += fmt::format(R"(<rect x="{}" y="{}" width="{}" height="{}" fill="{}"/>)", svg_number(top_left.x),
                      svg_number(top_left.y), svg_number(width), svg_number(height), fill);
  out_ += "\n";
}

void Svg::marker(Marker shape, SvgPoint at, double size, std::string_view color, std::string_view ground,
                 std::string_view tooltip) {
  const bool ring = shape == Marker::ring;
  // An outline in the background colour separates overlapping markers.
  const std::string paint = fmt::format(R"(fill="{}" stroke="{}" stroke-width="{}")", ring ? ground : color,
                                        ring ? color : ground, ring ? "1.8" : "1.2");
  const std::string inner = tooltip.empty() ? "" : fmt::format("<title>{}</title>", escape_markup(tooltip));
  const std::vector<SvgPoint> shape_corners = corners(shape);
  if (shape_corners.empty()) {
    out_ += fmt::format(R"(<circle cx="{}" cy="{}" r="{}" {}>{}</circle>)", svg_number(at.x), svg_number(at.y),
                        svg_number(ring ? 0.42 * size : 0.5 * size), paint, inner);
  } else {
    std::string points;
    for (const SvgPoint& corner : shape_corners) {
      points += fmt::format("{}{},{}", points.empty() ? "" : " ", svg_number(at.x + size * corner.x),
                            svg_number(at.y + size * corner.y));
    }
    out_ += fmt::format(R"(<polygon points="{}" {}>{}</polygon>)", points, paint, inner);
  }
  out_ += "\n";
}

void Svg::cross(SvgPoint at, double size, const Stroke& stroke) {
  const double h = size / 2;
  line({at.x - h, at.y - h}, {at.x + h, at.y + h}, stroke);
  line({at.x - h, at.y + h}, {at.x + h, at.y - h}, stroke);
}

void Svg::text(SvgPoint at, std::string_view content, const TextStyle& style) {
  out_ += fmt::format(R"(<text x="{}" y="{}" font-size="{}" fill="{}")", svg_number(at.x), svg_number(at.y),
                      svg_number(style.size), style.color);
  if (style.anchor != Anchor::start) {
    out_ += fmt::format(R"( text-anchor="{}")", style.anchor == Anchor::middle ? "middle" : "end");
  }
  if (style.bold) out_ += R"( font-weight="600")";
  out_ += fmt::format(">{}", escape_markup(content));
  if (!style.suffix.empty()) {
    out_ += fmt::format(R"(<tspan dx="5" font-weight="400" fill="{}">{}</tspan>)", style.suffix_color,
                        escape_markup(style.suffix));
  }
  out_ += "</text>\n";
}

std::string Svg::finish() && { return std::move(out_) + "</svg>\n"; }

double text_width(std::string_view text, double size, bool bold) {
  // Average width of digits and lower-case letters in wide sans-serif fonts (DejaVu Sans, Verdana).
  return static_cast<double>(text::tokenizers::count_characters(text)) * size * (bold ? 0.64 : 0.59);
}

}  // namespace alibi::report
