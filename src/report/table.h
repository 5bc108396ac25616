// A table, as text for the terminal and as HTML for the page.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace alibi::report {

/// What a column or a row is called.
struct Heading {
  std::string text;
  std::string more = {};   ///< in grey beside it, in brackets on the terminal
  bool is_method = false;  ///< shown with the marker of its curve
};

struct Cell {
  std::string text;
  std::string more = {};  ///< a second number in grey, such as a ratio
  bool is_best = false;   ///< bold, or marked with a star
  /// Why there is no number; not empty: the cell is grey, and its text may be a dash.
  std::string gap = {};
  int columns = 1;  ///< that it spans on the page
};

struct TableRow {
  Heading head;
  std::vector<Cell> cells;
  bool is_shaded = false;
};

/// Texts are UTF-8 and not escaped yet.
struct Table {
  std::string caption;
  std::vector<Heading> columns;  ///< the first one is above the heads of the rows
  std::vector<TableRow> rows;
};

/// Numbers are aligned to the right, headings stand above their numbers. Plain ASCII, ends with an empty line.
std::string to_text(const Table& table);
/// Scrolls by itself on narrow screens.
std::string to_html(const Table& table);

/// "×" and dashes as a terminal shows them wherever it runs: in ASCII.
std::string plain_text(std::string text);

}  // namespace alibi::report
