// A table, as text for the terminal and as HTML for the page.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace alibi::report {

/// Heading of a column or a row.
struct Heading {
  std::string text;
  std::string more = {};   ///< grey text after it, in parentheses on the terminal
  bool is_method = false;  ///< whether the marker of the method's curve is shown
};

struct Cell {
  std::string text;
  std::string more = {};  ///< a second number in grey, such as a ratio
  bool is_best = false;   ///< bold on the page, marked with a star on the terminal
  /// Why there is no number. If it is not empty, the cell is grey, and its text may be a dash.
  std::string gap = {};
  int columns = 1;  ///< number of columns that it spans on the page
};

struct TableRow {
  Heading head;
  std::vector<Cell> cells;
  bool is_shaded = false;
};

/// A table. Its texts are UTF-8 and not escaped yet.
struct Table {
  std::string caption;
  std::vector<Heading> columns;  ///< the first one is the heading of the row headings
  std::vector<TableRow> rows;
};

/// Formats the table as plain ASCII. Numbers are aligned to the right with headings above them. An empty line follows
/// the table.
std::string to_text(const Table& table);
/// Formats the table as HTML. On narrow screens it scrolls independently of the page.
std::string to_html(const Table& table);

/// Replaces "×" and dashes by ASCII, which every terminal shows.
std::string plain_text(std::string text);

}  // namespace alibi::report
