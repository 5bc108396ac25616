#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <iterator>
#include <optional>

#include "core/format.h"
#include "report/markup.h"
#include "report/page_sections.h"
#include "report/summarize.h"
#include "report/summary.h"
#include "report/svg.h"

namespace alibi::report {

namespace {

std::string named(const std::string& method) {
  return fmt::format("<span class=\"name\">{}{}</span>", marker_picture(method, page_theme()), escape_markup(method));
}

/// A table whose first column names the rows. Tables scroll by themselves on narrow screens.
class Table {
 public:
  Table(std::string_view caption, const std::string& header_cells) {
    out_ = fmt::format(
        "<p class=\"note\">{0}</p>\n<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{0}\"><table>\n"
        "<thead><tr>{1}</tr></thead>\n<tbody>\n",
        escape_markup(caption), header_cells);
  }
  void row(const std::string& head, const std::string& cells, const char* css = "") {
    out_ += fmt::format("<tr{}><th scope=\"row\">{}</th>{}</tr>\n", css, head, cells);
  }
  std::string finish() && { return std::move(out_) + "</tbody></table></div>\n"; }

 private:
  std::string out_;
};

std::string column(std::string_view html) { return fmt::format("<th scope=\"col\">{}</th>", html); }
std::string cell(std::string_view text) { return fmt::format("<td>{}</td>", text); }

std::string method_columns(const CompareResults& results) {
  std::string out;
  for (const MethodResults& method : results.methods) out += column(named(method.name));
  return out;
}

std::string length_head(int64_t length, int64_t train_length) {
  return fmt::format("{} <span class=\"more\">{}×</span>", core::format_integer(length),
                     core::format_multiple(length, train_length));
}

std::string rate(double value) { return std::isfinite(value) && value > 0 ? core::format_count(value) : "–"; }

/// Rows lengths, columns methods; `more` may add to a cell.
std::string length_table(const CompareResults& results, std::string_view caption, double EvaluationPoint::*value,
                         const std::function<std::string(double)>& format,
                         const std::function<std::string(const MethodResults&, const EvaluationPoint&)>& more) {
  Table table(caption, column("Length") + method_columns(results));
  for (const int64_t length : all_lengths(results)) {
    double best = INFINITY;
    for (const MethodResults& method : results.methods) {
      if (const auto* point = measured_at(method, length)) best = std::fmin(best, point->*value);
    }
    std::string cells;
    for (const MethodResults& method : results.methods) {
      const EvaluationPoint* point = measured_at(method, length);
      if (point == nullptr || !std::isfinite(point->*value)) {
        const EvaluationPoint* tried = evaluation_at(method, length);
        const std::string reason = tried == nullptr     ? "not tried"
                                   : tried->gap.empty() ? "not a finite number"
                                                        : tried->gap;
        cells +=
            fmt::format("<td class=\"gap\" title=\"{}\">– <span class=\"more\"></span></td>", escape_markup(reason));
        continue;
      }
      const std::string text = format(point->*value);
      const bool marked = results.methods.size() > 1 && text == format(best);
      cells += fmt::format("<td{}>{} <span class=\"more\">{}</span></td>", marked ? " class=\"best\"" : "", text,
                           more(method, *point));
    }
    table.row(length_head(length, results.train_length), cells,
              length == results.train_length ? " class=\"trained\"" : "");
  }
  return std::move(table).finish();
}

}  // namespace

std::string perplexity_table(const CompareResults& results) {
  const auto ratio = [&](const MethodResults& method, const EvaluationPoint& point) -> std::string {
    const EvaluationPoint* base = measured_at(method, results.train_length);
    if (base == nullptr || point.length == results.train_length) return "";
    return "×" + core::format_ratio(point.perplexity / base->perplexity);
  };
  const std::string caption = fmt::format(
      "Perplexity of {}. Bold: the lowest of its row. ×: against the same method at the training length (shaded row).",
      token_name(results));
  return length_table(results, caption, &EvaluationPoint::perplexity, core::format_perplexity, ratio);
}

std::string bits_table(const CompareResults& results) {
  return length_table(results, "Bits per byte, which do not depend on what tokens are. Bold: the lowest of its row.",
                      &EvaluationPoint::bits_per_byte, core::format_bits,
                      [](const MethodResults&, const EvaluationPoint&) { return std::string(); });
}

std::string difference_table(const CompareResults& results) {
  if (results.methods.size() < 2) return "";
  Table table(
      "Perplexity against the lowest one of the length, paired by seed, or by block of text where there is one seed; "
      "in "
      "brackets the 95 % interval.",
      column("Length") + method_columns(results));
  const auto percent = [](double nll) { return core::format_percent(std::expm1(nll), true); };
  for (const int64_t length : all_lengths(results)) {
    const AgainstBest apart = against_best(results, length);
    std::string cells;
    for (size_t i = 0; i < results.methods.size(); ++i) {
      const std::optional<Difference>& other = apart.others[i];
      if (&results.methods[i] == apart.best) {
        cells += "<td class=\"best\">best</td>";
      } else if (!other) {
        cells += "<td class=\"gap\">–</td>";
      } else {
        const bool known = std::isfinite(other->interval.low);
        cells += cell(fmt::format("{} %{}", percent(other->nll),
                                  known ? fmt::format(" <span class=\"more\">({} to {})</span>",
                                                      percent(other->interval.low), percent(other->interval.high))
                                        : ""));
      }
    }
    table.row(length_head(length, results.train_length), cells);
  }
  return "<details><summary>Differences, and how sure they are</summary>\n" + std::move(table).finish() +
         "</details>\n";
}

std::string details_table(const CompareResults& results) {
  Table table("Everything measured at each length.",
              column("Method") + column("Length") + column("Stride") + column("Tokens") + column("Loss, nats") +
                  column("Perplexity") + column("Bits per byte") + column("Tokens/s"));
  for (const MethodResults& method : results.methods) {
    std::vector<EvaluationPoint> points = method.evaluations;
    for (const auto* more : {&method.sliding, &method.interpolated, &method.streaming}) {
      points.insert(points.end(), more->begin(), more->end());
    }
    for (const EvaluationPoint& point : points) {
      if (!point.gap.empty()) {
        table.row(named(method.name),
                  cell(core::format_integer(point.length)) +
                      fmt::format("<td colspan=\"6\" class=\"gap\">{}</td>", escape_markup(point.gap)));
        continue;
      }
      const auto decimal = [](double value) { return std::isfinite(value) ? core::format_decimal(value, 4) : "–"; };
      table.row(named(method.name), cell(core::format_integer(point.length)) +
                                        cell(core::format_integer(point.stride)) +
                                        cell(core::format_integer(point.tokens)) + cell(decimal(point.nll)) +
                                        cell(measured(point) ? core::format_perplexity(point.perplexity) : "–") +
                                        cell(decimal(point.bits_per_byte)) + cell(rate(point.tokens_per_second)));
    }
  }
  return "<details><summary>All numbers: loss, bits per byte, tokens, speed</summary>\n" + std::move(table).finish() +
         "</details>\n";
}

std::string ways_table(const CompareResults& results) {
  const std::vector<WayToRead> ways = ways_to_read(results);
  if (ways.empty()) return "";
  std::string header = column("Method");
  for (const WayToRead& way : ways) header += column(escape_markup(way.name));
  Table table("The same targets, read in different ways: perplexity, and tokens per second.", header);
  for (size_t i = 0; i < results.methods.size(); ++i) {
    std::string cells;
    for (const WayToRead& way : ways) {
      const EvaluationPoint* point = way.points[i];
      if (point != nullptr && measured(*point)) {
        cells += cell(fmt::format("{} <span class=\"more\">{}</span>", core::format_perplexity(point->perplexity),
                                  rate(point->tokens_per_second)));
      } else {
        cells += fmt::format("<td class=\"gap\">{}</td>", point == nullptr ? "–" : escape_markup(point->gap));
      }
    }
    table.row(named(results.methods[i].name), cells);
  }
  return "<h3>Windows, and one pass</h3>\n" + std::move(table).finish();
}

namespace {

/// Of the runs, which were not measured side by side.
std::string run_speed_table(const CompareResults& results) {
  const std::vector<int64_t> lengths = all_lengths(results);
  const int64_t longest = lengths.empty() ? 0 : lengths.back();
  const bool two = longest > results.train_length;
  std::string header = column("Method") + column("Train tokens/s") +
                       column(fmt::format("Eval tokens/s at {}", core::format_integer(results.train_length)));
  if (two) header += column(fmt::format("Eval tokens/s at {}", core::format_integer(longest)));
  Table table("Speed of the runs, one after the other.", header);
  const auto speed = [&](const MethodResults& method, int64_t length) {
    const EvaluationPoint* point = measured_at(method, length);
    return cell(rate(point == nullptr ? NAN : point->tokens_per_second));
  };
  for (const MethodResults& method : results.methods) {
    std::string cells = cell(rate(method.train_tokens_per_second)) + speed(method, results.train_length);
    if (two) cells += speed(method, longest);
    table.row(named(method.name), cells);
  }
  return std::move(table).finish();
}

std::string turn_table(const CompareResults& results) {
  std::string header = column("Method");
  for (const SpeedPoint& point : results.speed.front().points) {
    header += column(work_name(point) + ", tokens/s") + column("CPU s per million");
  }
  Table table(
      "Speed of trained models, all methods taking turns: the median of the turns, and the processor time of all "
      "threads.",
      header);
  for (const MethodSpeed& speed : results.speed) {
    std::string cells;
    for (const SpeedPoint& point : speed.points) {
      const bool known = std::isfinite(point.cpu_seconds);
      cells += cell(rate(point.tokens_per_second)) + cell(known ? core::format_ratio(point.cpu_seconds) : "–");
    }
    table.row(named(speed.name()), cells);
  }
  return std::move(table).finish();
}

}  // namespace

std::string cost_table(const CompareResults& results) {
  Table table(
      "Time of the training, and peak resident memory of the process.",
      column("Method") + column("Training took") + column("FLOPs") + column("Train memory") + column("Eval memory"));
  const auto memory = [](int64_t bytes) { return cell(bytes > 0 ? core::format_bytes(bytes) : "–"); };
  for (const MethodResults& method : results.methods) {
    const double flops = method.train_flops_per_token * static_cast<double>(method.train_tokens);
    table.row(named(method.name), cell(method.train_seconds > 0 ? core::format_duration(method.train_seconds) : "–") +
                                      cell(flops > 0 && std::isfinite(flops) ? fmt::format("{:.3g}", flops) : "–") +
                                      memory(method.train_peak_bytes) + memory(method.eval_peak_bytes));
  }
  const std::string note = speed_note(results);
  return (results.speed.empty() ? run_speed_table(results) : turn_table(results)) +
         (note.empty() ? "" : "<p class=\"note\">" + escape_markup(note) + "</p>\n") + std::move(table).finish();
}

std::string position_table(const CompareResults& results) {
  int64_t longest = 0;
  for (const MethodResults& method : results.methods) {
    longest = std::max(longest, static_cast<int64_t>(method.per_position_nll.size()));
  }
  // Ranges that double: 1, 2, 3-4, 5-8, ...; at most the ten that are left when the short ones are joined.
  std::vector<std::pair<int64_t, int64_t>> ranges;
  for (int64_t begin = 0, end = 1; begin < longest; begin = end, end = std::min(2 * end, longest)) {
    ranges.emplace_back(begin, end);
    if (end == longest) break;
  }
  Table table("Mean loss in nats of the tokens at these positions.", column("Positions") + method_columns(results));
  for (const auto& [begin, end] : ranges) {
    std::string cells;
    for (const MethodResults& method : results.methods) {
      double sum = 0;
      const bool full = static_cast<int64_t>(method.per_position_nll.size()) >= end;
      for (int64_t i = begin; full && i < end; ++i) sum += method.per_position_nll[static_cast<size_t>(i)];
      const double mean = sum / static_cast<double>(end - begin);
      cells += full && std::isfinite(mean) ? cell(core::format_decimal(mean, 3)) : "<td class=\"gap\">–</td>";
    }
    table.row(end == begin + 1 ? core::format_integer(end)
                               : fmt::format("{}–{}", core::format_integer(begin + 1), core::format_integer(end)),
              cells);
  }
  return "<details><summary>The same as a table</summary>\n" + std::move(table).finish() + "</details>\n";
}

}  // namespace alibi::report
