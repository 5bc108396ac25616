#include "report/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "core/format.h"

namespace alibi::report {
namespace {

/// Width of a column: of the numbers with their star, and of the second numbers.
struct Width {
  size_t text = 0, more = 0;
};

std::string head_text(const Heading& head) {
  return head.more.empty() ? head.text : fmt::format("{} ({})", head.text, head.more);
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

std::string plain_text(std::string_view text) { return core::replace_all(core::replace_all(text, "×", "x"), "–", "-"); }

}  // namespace alibi::report
