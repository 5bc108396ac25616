#include "report/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include "report/format.h"
#include "report/summary.h"

namespace alibi {

namespace {

using Row = std::vector<std::string>;

/// First column to the left, the others to the right, two spaces between; a rule under the first row.
std::string aligned(const std::vector<Row>& rows) {
  std::vector<size_t> widths;
  for (const Row& row : rows) {
    widths.resize(std::max(widths.size(), row.size()));
    for (size_t i = 0; i < row.size(); ++i) widths[i] = std::max(widths[i], row[i].size());
  }
  size_t total = 0;
  for (const size_t width : widths) total += width + 2;
  std::string out;
  for (size_t r = 0; r < rows.size(); ++r) {
    std::string line;
    for (size_t i = 0; i < rows[r].size(); ++i) {
      line += i == 0 ? fmt::format("{:<{}}", rows[r][i], widths[i]) : fmt::format("  {:>{}}", rows[r][i], widths[i]);
    }
    line.erase(line.find_last_not_of(' ') + 1);  // the last column may end in the blank that stands for "not best"
    out += line + "\n";
    if (r == 0) out += std::string(total - 2, '-') + "\n";
  }
  return out;
}

std::string length_label(int64_t length, int64_t train_length) {
  if (length == train_length || train_length <= 0) return fmt::format("{}", length);
  return fmt::format("{} ({}x)", length, format_multiple(length, train_length));
}

/// Rows lengths, columns methods; lower is better.
std::vector<Row> rows_by_length(const CompareResults& results, double EvaluationPoint::*value,
                                const std::function<std::string(double)>& format) {
  std::vector<Row> rows(1, Row{"length"});
  // Every cell ends in '*' or ' ', so that the digits of a column stand under each other.
  for (const MethodResults& method : results.methods) rows[0].push_back(method.name + " ");
  for (const int64_t length : all_lengths(results)) {
    double best = INFINITY;
    for (const MethodResults& method : results.methods) {
      if (const auto* point = measured_at(method, length)) best = std::fmin(best, point->*value);
    }
    Row row{length_label(length, results.train_length)};
    for (const MethodResults& method : results.methods) {
      const auto* point = measured_at(method, length);
      const bool valid = point != nullptr && std::isfinite(point->*value);
      const std::string text = valid ? format(point->*value) : "-";
      const bool marked = results.methods.size() > 1 && valid && text == format(best);
      row.push_back(text + (marked ? "*" : " "));
    }
    rows.push_back(row);
  }
  return rows;
}

std::string rate(const EvaluationPoint* point) {
  return point == nullptr || point->tokens_per_second <= 0 ? "-" : format_count(point->tokens_per_second);
}

std::vector<Row> speed_rows(const CompareResults& results) {
  const std::vector<int64_t> lengths = all_lengths(results);
  const int64_t longest = lengths.empty() ? 0 : lengths.back();
  const bool two = longest > results.train_length;
  Row header{"tokens/s", "train", fmt::format("eval at {}", results.train_length)};
  if (two) header.push_back(fmt::format("eval at {}", longest));
  header.insert(header.end(), {"train memory", "eval memory"});
  std::vector<Row> rows{header};
  const auto memory = [](int64_t bytes) { return bytes > 0 ? format_bytes(bytes) : "-"; };
  for (const MethodResults& method : results.methods) {
    Row row{method.name, method.train_tokens_per_second > 0 ? format_count(method.train_tokens_per_second) : "-",
            rate(measured_at(method, results.train_length))};
    if (two) row.push_back(rate(measured_at(method, longest)));
    row.insert(row.end(), {memory(method.train_peak_bytes), memory(method.eval_peak_bytes)});
    rows.push_back(row);
  }
  return rows;
}

/// One line for each method that has gaps.
std::string gap_notes(const CompareResults& results) {
  std::string notes;
  for (const MethodResults& method : results.methods) {
    const EvaluationPoint* first = nullptr;
    for (const EvaluationPoint& point : method.evaluations) {
      if (!measured(point) && first == nullptr) first = &point;
    }
    if (first == nullptr) continue;
    notes += fmt::format("- {} at {}: {}\n", method.name, first->length,
                         first->gap.empty() ? "the result is not a finite number" : first->gap);
  }
  return notes;
}

}  // namespace

std::string comparison_table(const CompareResults& results) {
  if (results.methods.empty()) return "No method was compared.\n";
  std::string out =
      fmt::format("Perplexity on held-out text by evaluation length, trained at {} {}{}\n\n", results.train_length,
                  token_name(results), results.methods.size() > 1 ? " (* best of the row)" : "");
  out += aligned(rows_by_length(results, &EvaluationPoint::perplexity, format_perplexity)) + "\n";
  out += "Bits per byte of the same text\n\n";
  out += aligned(rows_by_length(results, &EvaluationPoint::bits_per_byte, format_bits)) + "\n";
  out += aligned(speed_rows(results));
  const std::string notes = gap_notes(results);
  return notes.empty() ? out : out + "\n" + notes;
}

}  // namespace alibi
