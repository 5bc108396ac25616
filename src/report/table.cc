#include "report/table.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>
#include <vector>

#include "core/format.h"
#include "report/summarize.h"
#include "report/summary.h"

namespace alibi::report {

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
  return fmt::format("{} ({}x)", length, core::format_multiple(length, train_length));
}

/// The standard deviation between seeds, before the value so that the digits of values stand under each other.
std::string spread(const EvaluationPoint& point, double EvaluationPoint::*value) {
  if (!std::isfinite(point.deviation) || value != &EvaluationPoint::perplexity) return "";
  return fmt::format("(sd {} %) ", core::format_decimal(100 * point.deviation, 1));
}

/// "+59 % (55 to 63)": of a perplexity against another.
std::string against(const std::optional<Difference>& apart) {
  if (!apart) return "-";
  const auto percent = [](double nll) { return core::format_percent(std::expm1(nll)); };
  const Interval& interval = apart->interval;
  const std::string value = fmt::format("+{} %", percent(apart->nll));
  if (!std::isfinite(interval.low)) return value;
  return fmt::format("{} ({} to {})", value, percent(interval.low), percent(interval.high));
}

/// Rows: the training length and the longest; how far each method lies above the best one.
std::vector<Row> difference_rows(const CompareResults& results) {
  std::vector<Row> rows(1, Row{"above the best at"});
  for (const MethodResults& method : results.methods) rows[0].push_back(method.name);
  const std::vector<int64_t> lengths = all_lengths(results);
  for (const int64_t length : {results.train_length, lengths.empty() ? 0 : lengths.back()}) {
    const AgainstBest apart = against_best(results, length);
    if (apart.best == nullptr || (rows.size() == 2 && length == results.train_length)) continue;
    Row row{length_label(length, results.train_length)};
    for (size_t i = 0; i < results.methods.size(); ++i) {
      row.push_back(&results.methods[i] == apart.best ? "best" : against(apart.others[i]));
    }
    rows.push_back(row);
  }
  return rows;
}

/// One line for each method of which it can be told.
std::string curse_notes(const CompareResults& results) {
  std::string notes;
  for (const MethodResults& method : results.methods) {
    const std::optional<EarlyTokenCurse> curse = early_token_curse(results.held_out, method);
    if (!curse) continue;
    notes += fmt::format(
        "- {}: windows of {} lower the loss by {} nats against {}; targets with all their text gain "
        "{}, so {} % of it is the early token curse\n",
        method.name, curse->to, core::format_decimal(curse->gain, 4), curse->from,
        core::format_decimal(curse->with_text, 4), core::format_decimal(100 * curse->share, 0));
  }
  return notes;
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
      row.push_back((valid ? spread(*point, value) : "") + text + (marked ? "*" : " "));
    }
    rows.push_back(row);
  }
  return rows;
}

std::string rate(const EvaluationPoint* point) {
  return point == nullptr || point->tokens_per_second <= 0 ? "-" : core::format_count(point->tokens_per_second);
}

/// Measured in turns: wall and processor time.
std::vector<Row> turn_rows(const CompareResults& results) {
  Row header{"tokens/s (CPU s per million)"};
  for (const SpeedPoint& point : results.speed.front().points) {
    header.push_back(fmt::format("{} at {}", point.work, point.length));
  }
  std::vector<Row> rows{header};
  for (const MethodSpeed& speed : results.speed) {
    Row row{speed.name()};
    for (const SpeedPoint& point : speed.points) {
      const bool known = std::isfinite(point.tokens_per_second);
      row.push_back(known ? fmt::format("{} ({})", core::format_count(point.tokens_per_second),
                                        core::format_ratio(point.cpu_seconds))
                          : "-");
    }
    rows.push_back(row);
  }
  return rows;
}

std::vector<Row> memory_rows(const CompareResults& results) {
  std::vector<Row> rows{{"peak memory", "train", "eval"}};
  const auto memory = [](int64_t bytes) { return bytes > 0 ? core::format_bytes(bytes) : "-"; };
  for (const MethodResults& method : results.methods) {
    rows.push_back({method.name, memory(method.train_peak_bytes), memory(method.eval_peak_bytes)});
  }
  return rows;
}

/// Of the runs, which were not measured side by side.
std::vector<Row> speed_rows(const CompareResults& results) {
  const std::vector<int64_t> lengths = all_lengths(results);
  const int64_t longest = lengths.empty() ? 0 : lengths.back();
  const bool two = longest > results.train_length;
  Row header{"tokens/s", "train", fmt::format("eval at {}", results.train_length)};
  if (two) header.push_back(fmt::format("eval at {}", longest));
  std::vector<Row> rows{header};
  for (const MethodResults& method : results.methods) {
    Row row{method.name, method.train_tokens_per_second > 0 ? core::format_count(method.train_tokens_per_second) : "-",
            rate(measured_at(method, results.train_length))};
    if (two) row.push_back(rate(measured_at(method, longest)));
    rows.push_back(row);
  }
  return rows;
}

/// Rows methods, columns ways to read the same text: perplexity, and what it costs.
std::vector<Row> way_rows(const CompareResults& results, const std::vector<WayToRead>& ways) {
  std::vector<Row> rows(1, Row{"perplexity, tokens/s"});
  for (const WayToRead& way : ways) rows[0].push_back(way.name);
  for (size_t i = 0; i < results.methods.size(); ++i) {
    Row row{results.methods[i].name};
    for (const WayToRead& way : ways) {
      const EvaluationPoint* point = way.points[i];
      const bool valid = point != nullptr && measured(*point);
      row.push_back(valid ? fmt::format("{}, {:>5}", core::format_perplexity(point->perplexity), rate(point)) : "-");
    }
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
    const auto note = [&](const std::string& where, const EvaluationPoint& point) {
      notes += fmt::format("- {} {}: {}\n", method.name, where,
                           point.gap.empty() ? "the result is not a finite number" : point.gap);
    };
    if (first != nullptr) note(fmt::format("at {}", first->length), *first);
    if (!method.streaming.empty() && !measured(method.streaming[0])) note("in one pass", method.streaming[0]);
  }
  return notes;
}

}  // namespace

std::string comparison_table(const CompareResults& results) {
  if (results.methods.empty()) return "No method was compared.\n";
  std::string out =
      fmt::format("Perplexity on held-out text by evaluation length, trained at {} {}{}\n\n", results.train_length,
                  token_name(results), results.methods.size() > 1 ? " (* best of the row)" : "");
  out += aligned(rows_by_length(results, &EvaluationPoint::perplexity, core::format_perplexity)) + "\n";
  out += "Bits per byte of the same text\n\n";
  out += aligned(rows_by_length(results, &EvaluationPoint::bits_per_byte, core::format_bits)) + "\n";
  if (results.methods.size() > 1) {
    out += "Perplexity against the lowest of the length, paired by seed or by block of text (95 % intervals)\n\n";
    out += aligned(difference_rows(results)) + "\n";
  }
  const std::vector<WayToRead> ways = ways_to_read(results);
  if (!ways.empty()) out += "Ways to read the same text\n\n" + aligned(way_rows(results, ways)) + "\n";
  out += aligned(results.speed.empty() ? speed_rows(results) : turn_rows(results)) + "\n";
  out += aligned(memory_rows(results));
  const std::string disturbed = speed_note(results);
  const std::string notes =
      (disturbed.empty() ? "" : "- " + disturbed + "\n") + curse_notes(results) + gap_notes(results);
  return notes.empty() ? out : out + "\n" + notes;
}

}  // namespace alibi::report
