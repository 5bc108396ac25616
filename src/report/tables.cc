#include "report/tables.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <optional>

#include "core/format.h"
#include "report/summarize.h"
#include "report/summary.h"
#include "report/tasks.h"
#include "report/verdict.h"

namespace alibi::report {
namespace {

Heading method_heading(const std::string& name) { return {name, "", true}; }

/// `first` as the heading of the row headings, then one column per method.
std::vector<Heading> method_columns(const char* first, const CompareResults& results) {
  std::vector<Heading> columns = {{first}};
  for (const MethodResults& method : results.methods) columns.push_back(method_heading(method.name));
  return columns;
}

Heading length_heading(int64_t length, int64_t train_length) {
  return {core::format_integer(length), core::format_multiple(length, train_length) + "×"};
}

Cell no_number(const std::string& reason) { return {.text = "–", .gap = reason}; }

Cell rate_cell(double value) {
  const bool known = std::isfinite(value) && value > 0;
  return known ? Cell{.text = core::format_count(value), .value = value} : no_number("not measured");
}

std::string why_no_number(const EvaluationPoint* tried) {
  if (tried == nullptr) return "not evaluated";
  return tried->gap.empty() ? "the result is not a finite number" : tried->gap;
}

/// One row per length, one column per method. Lower values are better.
Table length_table(const CompareResults& results, std::string caption, double EvaluationPoint::*value,
                   const std::function<std::string(double)>& format,
                   const std::function<std::string(const MethodResults&, const EvaluationPoint&)>& more) {
  Table table{std::move(caption), method_columns("Length", results), {}};
  for (const int64_t length : all_lengths(results)) {
    double best = INFINITY;
    for (const MethodResults& method : results.methods) {
      const EvaluationPoint* point = measured_at(method, length);
      if (point != nullptr && !has_not_learned(results, method)) best = std::fmin(best, point->*value);
    }
    TableRow row{length_heading(length, results.train_length), {}, length == results.train_length};
    for (const MethodResults& method : results.methods) {
      const EvaluationPoint* point = measured_at(method, length);
      if (point == nullptr || !std::isfinite(point->*value)) {
        row.cells.push_back(no_number(why_no_number(evaluation_at(method, length))));
        continue;
      }
      const std::string text = format(point->*value);
      const bool is_best = results.methods.size() > 1 && text == format(best) && !has_not_learned(results, method);
      row.cells.push_back({text, more(method, *point), is_best});
    }
    table.rows.push_back(std::move(row));
  }
  const auto is_marked = [](const TableRow& row) { return std::ranges::any_of(row.cells, &Cell::is_best); };
  if (std::ranges::any_of(table.rows, is_marked)) {
    table.caption += not_learned_note(results).empty()
                         ? " The lowest number in each row is marked."
                         : " The lowest number in each row among the methods that have learned is marked.";
  }
  return table;
}

}  // namespace

Table perplexity_table(const CompareResults& results) {
  const auto change = [](const MethodResults& method, const EvaluationPoint& point) -> std::string {
    const EvaluationPoint* base = measured_at(method, method.train_length);
    if (base == nullptr || point.length == method.train_length) return "";
    return change_text(point.nll - base->nll);
  };
  const std::string caption = fmt::format(
      "Perplexity of {} of held-out text by evaluation length. The second number is the change relative to the "
      "training length, {}.",
      token_name(results), core::format_integer(results.train_length));
  return length_table(results, caption, &EvaluationPoint::perplexity, core::format_perplexity, change);
}

Table bits_table(const CompareResults& results) {
  return length_table(results,
                      "Bits per byte of the same text. Unlike perplexity, bits per byte can be compared between "
                      "tokenizers.",
                      &EvaluationPoint::bits_per_byte, core::format_bits,
                      [](const MethodResults&, const EvaluationPoint&) { return std::string(); });
}

Table difference_table(const CompareResults& results, const std::vector<int64_t>& lengths) {
  Table table{
      has_intervals(results)
          ? "Perplexity relative to the lowest one at each length, with 95 % intervals. Methods are paired by seed, or "
            "by block of text if there is only one seed."
          : "Perplexity relative to the lowest one at each length.",
      method_columns("Length", results),
      {}};
  for (const int64_t length : lengths) {
    const AgainstBest apart = against_best(results, length);
    if (apart.best == nullptr) continue;
    TableRow row{length_heading(length, results.train_length), {}};
    for (size_t i = 0; i < results.methods.size(); ++i) {
      const std::optional<Difference>& other = apart.others[i];
      if (&results.methods[i] == apart.best) {
        row.cells.push_back({.text = "best"});
      } else {
        row.cells.push_back(other ? Cell{change_text(other->nll, other->interval)} : no_number("not measured"));
      }
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table ways_table(const CompareResults& results, const std::vector<WayToRead>& ways) {
  Table table{"Perplexity of the same text and tokens per second for each kind of evaluation.", {{"Method"}}, {}};
  for (const WayToRead& way : ways) table.columns.push_back({way.name});
  for (size_t i = 0; i < results.methods.size(); ++i) {
    TableRow row{method_heading(results.methods[i].name), {}};
    for (const WayToRead& way : ways) {
      const EvaluationPoint* point = way.points[i];
      row.cells.push_back(point != nullptr && measured(*point) ? Cell{core::format_perplexity(point->perplexity),
                                                                      rate_cell(point->tokens_per_second).text}
                                                               : no_number(why_no_number(point)));
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table speed_table(const CompareResults& results) {
  Table table{
      "Tokens per second of the trained models: median of rounds in which the methods alternate. The second number "
      "is the processor time of all threads in seconds per million tokens.",
      {{"Method"}},
      {}};
  if (results.speed.empty()) return table;
  for (const SpeedPoint& point : results.speed.front().points) table.columns.push_back({work_name(point)});
  for (const MethodSpeed& speed : results.speed) {
    TableRow row{method_heading(speed.name()), {}};
    for (const SpeedPoint& point : speed.points) {
      Cell& cell = row.cells.emplace_back(rate_cell(point.tokens_per_second));
      if (std::isfinite(point.cpu_seconds)) cell.more = core::format_ratio(point.cpu_seconds) + " s";
    }
    table.rows.push_back(std::move(row));
  }
  return table;
}

Table cost_table(const CompareResults& results) {
  Table table{
      "Training time, number of floating-point operations in training, and peak resident memory of the process.",
      {{"Method"}, {"Training time"}, {"FLOPs"}, {"Training memory"}, {"Evaluation memory"}},
      {}};
  const auto memory = [](int64_t bytes) {
    return bytes > 0 ? Cell{.text = core::format_bytes(bytes), .value = static_cast<double>(bytes)}
                     : no_number("not measured");
  };
  for (const MethodResults& method : results.methods) {
    if (method.window > 0) continue;  // the models of another row
    const double flops = method.train_flops_per_token * static_cast<double>(method.train_tokens);
    table.rows.push_back(
        {method_heading(method.name),
         {method.train_seconds > 0 ? Cell{core::format_duration(method.train_seconds)} : no_number("not measured"),
          flops > 0 && std::isfinite(flops) ? Cell{fmt::format("{:.3g}", flops)} : no_number("not measured"),
          memory(method.train_peak_bytes), memory(method.eval_peak_bytes)}});
  }
  return table;
}

namespace {

/// One line for each method that has gaps.
std::vector<std::string> gap_notes(const CompareResults& results) {
  std::vector<std::string> notes;
  for (const MethodResults& method : results.methods) {
    const auto first = std::find_if(method.evaluations.begin(), method.evaluations.end(),
                                    [](const EvaluationPoint& point) { return !measured(point); });
    if (first != method.evaluations.end()) {
      notes.push_back(fmt::format("{} at {}: {}", method.name, first->length, why_no_number(&*first)));
    }
    if (!method.streaming.empty() && !measured(method.streaming[0])) {
      notes.push_back(fmt::format("{} in one pass: {}", method.name, why_no_number(&method.streaming[0])));
    }
  }
  return notes;
}

}  // namespace

std::string comparison_text(const CompareResults& results) {
  std::string of_tasks = to_text(reach_table(results));
  for (const TaskResults& task : results.tasks) of_tasks += to_text(accuracy_table(task));
  if (results.methods.empty()) return of_tasks + plain_text(verdict(results)) + "\n";
  std::string out = to_text(perplexity_table(results)) + to_text(bits_table(results));
  const std::vector<int64_t> lengths = all_lengths(results);
  if (results.methods.size() > 1 && !lengths.empty()) {
    std::vector<int64_t> ends = {results.train_length, lengths.back()};
    ends.erase(std::unique(ends.begin(), ends.end()), ends.end());
    out += to_text(difference_table(results, ends));
  }
  const std::vector<WayToRead> ways = ways_to_read(results);
  if (!ways.empty()) out += to_text(ways_table(results, ways));
  if (!results.speed.empty()) out += to_text(speed_table(results));
  out += to_text(cost_table(results)) + of_tasks;
  std::vector<std::string> notes = gap_notes(results);
  for (const std::string& note : early_token_notes(results)) notes.push_back(note);
  if (const std::string note = speed_note(results); !note.empty()) notes.push_back(note);
  for (const std::string& note : notes) out += plain_text("- " + note + "\n");
  return out + (notes.empty() ? "" : "\n") + plain_text(verdict(results)) + "\n";
}

}  // namespace alibi::report
