#include "report/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "report/markup.h"
#include "report/svg.h"

namespace alibi::report {
namespace {

/// Width of a column: of the numbers with their star, and of the second numbers.
struct Width {
  size_t text = 0, more = 0;
};

std::string head_text(const Heading& head) {
  return head.more.empty() ? head.text : fmt::format("{} ({})", head.text, head.more);
}

std::string heading_html(const Heading& heading) {
  std::string text = escape_markup(heading.text);
  if (heading.is_method) {
    text = fmt::format("<span class=\"name\">{}{}</span>", marker_picture(heading.text, page_theme()), text);
  }
  return heading.more.empty() ? text
                              : fmt::format("{} <span class=\"more\">{}</span>", text, escape_markup(heading.more));
}

std::string cell_html(const Cell& cell, bool has_more) {
  std::string attributes = cell.is_best ? " class=\"best\"" : "";
  if (!cell.gap.empty()) attributes = " class=\"gap\"";
  if (!cell.gap.empty() && cell.gap != cell.text) attributes += fmt::format(" title=\"{}\"", escape_markup(cell.gap));
  if (cell.columns > 1) attributes += fmt::format(" colspan=\"{}\"", cell.columns);
  const std::string more =
      has_more ? fmt::format(" <span class=\"more\">{}</span>", escape_markup(cell.more)) : std::string();
  return fmt::format("<td{}>{}{}</td>", attributes, escape_markup(cell.text), more);
}

/// For each column after the first, whether any cell has a second number.
std::vector<bool> columns_with_more(const Table& table) {
  std::vector<bool> result(table.columns.size());
  for (const TableRow& row : table.rows) {
    for (size_t i = 0; i < row.cells.size(); ++i) result[i] = result[i] || !row.cells[i].more.empty();
  }
  return result;
}

}  // namespace

std::string to_text(const Table& table) {
  if (table.rows.empty()) return {};
  bool any_best = false;
  for (const TableRow& row : table.rows) {
    any_best = any_best || std::any_of(row.cells.begin(), row.cells.end(), [](const Cell& c) { return c.is_best; });
  }
  const auto text_of = [&](const Cell& cell) {
    return plain_text(cell.text) + (cell.is_best ? "*" : any_best ? " " : "");
  };

  size_t head_width = plain_text(table.columns.front().text).size();
  std::vector<Width> widths(table.columns.size() - 1);
  for (size_t i = 0; i < widths.size(); ++i) {
    widths[i].text = plain_text(head_text(table.columns[i + 1])).size() + (any_best ? 1 : 0);
  }
  for (const TableRow& row : table.rows) {
    head_width = std::max(head_width, plain_text(head_text(row.head)).size());
    for (size_t i = 0; i < row.cells.size(); ++i) {
      widths[i].text = std::max(widths[i].text, text_of(row.cells[i]).size());
      widths[i].more = std::max(widths[i].more, plain_text(row.cells[i].more).size());
    }
  }

  std::string out = plain_text(table.caption) + "\n\n";
  const auto add_line = [&](std::string line) {
    line.erase(line.find_last_not_of(' ') + 1);
    out += line + "\n";
  };
  std::string header = fmt::format("{:<{}}", plain_text(table.columns.front().text), head_width);
  size_t total = head_width;
  for (size_t i = 0; i < widths.size(); ++i) {
    const auto [text, more] = widths[i];
    const std::string name = plain_text(head_text(table.columns[i + 1])) + (any_best ? " " : "");
    header += fmt::format("  {:>{}}{}", name, text, std::string(more > 0 ? more + 1 : 0, ' '));
    total += 2 + text + (more > 0 ? more + 1 : 0);
  }
  add_line(header);
  add_line(std::string(total, '-'));
  for (const TableRow& row : table.rows) {
    std::string line = fmt::format("{:<{}}", plain_text(head_text(row.head)), head_width);
    for (size_t i = 0; i < row.cells.size(); ++i) {
      line += fmt::format("  {:>{}}", text_of(row.cells[i]), widths[i].text);
      if (widths[i].more > 0) line += fmt::format(" {:<{}}", plain_text(row.cells[i].more), widths[i].more);
    }
    add_line(line);
  }
  return out + "\n";
}

std::string to_html(const Table& table) {
  const std::vector<bool> has_more = columns_with_more(table);
  std::string out = fmt::format(
      "<p class=\"note\">{0}</p>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{0}\"><table>\n"
      "<thead><tr>",
      escape_markup(table.caption));
  for (size_t i = 0; i < table.columns.size(); ++i) {
    // An empty second number aligns the heading with the first numbers.
    const bool padded = i > 0 && has_more[i - 1];
    out += fmt::format("<th scope=\"col\"{}>{}{}</th>", padded ? " class=\"padded\"" : "",
                       heading_html(table.columns[i]), padded ? " <span class=\"more\"></span>" : "");
  }
  out += "</tr></thead>\n<tbody>\n";
  for (const TableRow& row : table.rows) {
    out += fmt::format("<tr{}><th scope=\"row\">{}</th>", row.is_shaded ? " class=\"trained\"" : "",
                       heading_html(row.head));
    for (size_t i = 0; i < row.cells.size(); ++i) out += cell_html(row.cells[i], has_more[i]);
    out += "</tr>\n";
  }
  return out + "</tbody></table></div>\n";
}

std::string plain_text(std::string text) {
  for (const auto& [from, to] : {std::pair("×", "x"), std::pair("–", "-")}) {
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from))
      text.replace(at, std::string_view(from).size(), to);
  }
  return text;
}

}  // namespace alibi::report
