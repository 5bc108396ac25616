// A table, for the terminal and for the page.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace alibi::report {

/// Heading of a column or a row.
struct Heading {
  std::string text;
  std::string more = {};   ///< grey text after it, in parentheses on the terminal
  bool is_method = false;  ///< whether the page shows the marker of the method's curve
};

struct Cell {
  std::string text;
  std::string more = {};  ///< a second number in grey, such as a ratio
  bool is_best = false;   ///< bold on the page, marked with a star on the terminal
  /// Why there is no number. If it is not empty, the cell is grey, and its text may be a dash.
  std::string gap = {};
  double value = 0;  ///< if positive, the page shows it as a bar beside the other values of the column
};

struct TableRow {
  Heading head;
  std::vector<Cell> cells;
  bool is_trained = false;  ///< whether this is the training length, which the page shades
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

/// Replaces "×" and dashes by ASCII, which every terminal shows.
std::string plain_text(std::string_view text);

}  // namespace alibi::report
