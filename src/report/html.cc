#include "report/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>
#include <vector>

#include "core/files.h"
#include "core/format.h"
#include "report/attention_chart.h"
#include "report/figures.h"
#include "report/json.h"
#include "report/markup.h"
#include "report/page_sections.h"
#include "report/page_style.h"
#include "report/summarize.h"
#include "report/summary.h"
#include "report/verdict.h"

namespace alibi::report {

namespace {

constexpr const char* kResultsFile = "results.json";
constexpr const char* kReportFile = "report.html";

std::string figure(const LineChart& chart, const std::string& caption) {
  return fmt::format(
      "<figure>\n<div class=\"wide\">{}</div>\n<div class=\"compact\">{}</div>\n"
      "<figcaption>{}</figcaption>\n</figure>\n",
      draw(chart, page_theme(), false), draw(compacted(chart), page_theme(), false),
      chart.gaps.empty() ? caption : caption + " " + escape_markup(chart.gaps));
}

/// The verdict as HTML; "15 %" must not be torn apart at the end of a line.
std::string verdict_markup(const CompareResults& results) {
  std::string text = escape_markup(verdict(results));
  for (size_t at = text.find(" %"); at != std::string::npos; at = text.find(" %", at)) text.replace(at, 1, "&nbsp;");
  return text;
}

std::string seeds_text(const CompareResults& results) {
  const std::string seeds = number_of_seeds(results);
  return seeds == "1" ? fmt::format("once, from seed {}", results.seed) : fmt::format("from {} seeds", seeds);
}

std::string section(const char* id, std::string_view heading, const std::string& body) {
  return fmt::format("<section aria-labelledby=\"{0}-heading\">\n<h2 id=\"{0}-heading\">{1}</h2>\n{2}</section>\n", id,
                     heading, body);
}

std::string perplexity_section(const CompareResults& results) {
  const std::string caption = fmt::format(
      "Each model was trained on windows of {} tokens ({}), then read the same held-out text in windows of each "
      "length; "
      "the tokens that are scored are the same ones. The dashed line marks the training length; everything to its "
      "right "
      "is longer than anything a model saw in training.",
      core::format_integer(results.train_length), seeds_text(results));
  return section("perplexity", "Perplexity against evaluation length",
                 figure(perplexity_chart(results), caption) + "<h3>The numbers</h3>\n" + perplexity_table(results) +
                     bits_table(results) + difference_table(results) + details_table(results));
}

std::string cost_section(const CompareResults& results) {
  const std::vector<BarChart> charts = cost_charts(results);
  std::string body;
  if (!charts.empty()) {
    body += "<figure class=\"bars\">\n";
    for (const BarChart& chart : charts) body += draw(chart, page_theme());
    body += "</figure>\n";
  }
  return section("cost", "Speed and memory",
                 body + ways_table(results) + "<h3>The numbers</h3>\n" + cost_table(results));
}

std::string loss_section(const CompareResults& results) {
  const LineChart chart = loss_chart(results);
  if (chart.series.empty()) return "";
  return section(
      "loss", "Training",
      figure(chart, "Mean loss since the point before. All methods saw the same batches in the same order."));
}

/// Whether far text helps: the same targets, seen with more and more of it.
std::string context_part(const CompareResults& results) {
  const LineChart chart = context_chart(results);
  if (chart.series.empty()) return "";
  std::string text =
      "<h3>The same tokens, with more text before them</h3>\n"
      "<p>Here no token stands at the beginning of a window: the same held-out tokens, in groups of 16, are predicted "
      "from 16, 32, 64 ... tokens of text. What falls here is what a method gains from far text.</p>\n";
  text += figure(chart, "Each group of 16 tokens ends a window of so many tokens.");
  std::string notes;
  for (const MethodResults& method : results.methods) {
    const std::optional<EarlyTokenCurse> curse = early_token_curse(results.held_out, method);
    if (!curse) continue;
    notes += fmt::format(
        "<li>{}: windows of {} lower the loss by {} nats against windows of {}; tokens that have all their text "
        "gain {}. So <strong>{}&nbsp;%</strong> of the gain is the early token curse.</li>\n",
        escape_markup(method.name), core::format_integer(curse->to), core::format_decimal(curse->gain, 4),
        core::format_integer(curse->from), core::format_decimal(curse->with_text, 4),
        core::format_decimal(100 * curse->share, 0));
  }
  return notes.empty() ? text : text + "<ul>\n" + notes + "</ul>\n";
}

std::string position_section(const CompareResults& results) {
  const LineChart chart = position_chart(results);
  if (chart.series.empty()) return "";
  const std::string text =
      "<p>The first tokens of a window are predicted from almost nothing, so their loss is high: the <em>early token "
      "curse</em>. Longer windows contain fewer such beginnings, and that alone lowers perplexity. So a perplexity\n"
      "that falls with the evaluation length does not yet show that a model uses distant tokens; a curve that keeps\n"
      "falling to the right of the training length points to it. A curve that rises there belongs to a method that\n"
      "fails past its training length.</p>\n";
  return section("positions", "Loss by position: the early token curse",
                 text + figure(chart, "Neighbouring positions are averaged, the more the further to the right.") +
                     position_table(results) + context_part(results));
}

std::string attention_section(const CompareResults& results) {
  for (const MethodResults& method : results.methods) {
    const std::string drawn = draw_attention(method.attention, page_theme(), false);
    if (drawn.empty()) continue;
    return section(
        "attention", "Where the heads look",
        fmt::format("<p>How much weight a key gets on average at each distance, in windows of {} held-out tokens, in "
                    "{}'s first model. The dashed line is what the head's slope alone would give: where the two "
                    "differ, the model has learned where to look.</p>\n",
                    core::format_integer(method.attention.length), escape_markup(method.name)) +
            "<figure>\n" + drawn + "</figure>\n");
  }
  return "";
}

std::string sample_section(const CompareResults& results) {
  const std::string samples = samples_section(results);
  if (samples.empty()) return "";
  return section("samples", "What the models write past their training length",
                 "<p>Each model goes on from the same prompt (bold). Bytes that are no text are shown as "
                 "<i class=\"byte\">\\x1b</i>.</p>\n" +
                     samples);
}

}  // namespace

std::string report_html(const CompareResults& results) {
  const std::vector<int64_t> lengths = all_lengths(results);
  const std::string title =
      fmt::format("Trained at {} tokens, tested at {}", core::format_integer(results.train_length),
                  core::format_integer(lengths.empty() ? 0 : lengths.back()));
  std::string out =
      "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta name=\"color-scheme\" content=\"light dark\">\n";
  out += fmt::format("<title>{}</title>\n<meta name=\"description\" content=\"{}\">\n", title,
                     escape_markup(verdict(results)));
  if (!results.version.empty()) {
    out += fmt::format("<meta name=\"generator\" content=\"alibi {}\">\n", escape_markup(results.version));
  }
  out += "<style>" + page_style() + "</style>\n</head>\n<body>\n";
  out +=
      fmt::format("<header>\n<p class=\"kind\">Train short, test long</p>\n<h1>{}</h1>\n<p class=\"verdict\">{}</p>\n",
                  title, verdict_markup(results));
  out += facts_section(results) + "</header>\n<main>\n";
  out += perplexity_section(results) + cost_section(results) + loss_section(results) + position_section(results) +
         attention_section(results) + sample_section(results) +
         section("settings", "Settings, and how to repeat it", settings_section(results));
  out +=
      "</main>\n<footer><p>Written by <code>alibi compare</code>. ALiBi: Press, Smith and Lewis,\n<cite>Train Short, "
      "Test Long: Attention with Linear Biases Enables Input Length Extrapolation</cite>, ICLR 2022.\nThe numbers of "
      "this page are in <code>results.json</code> beside it.</p></footer>\n</body>\n</html>\n";
  return out;
}

bool holds_report(const std::filesystem::path& folder) {
  return core::path_exists(folder / kResultsFile) || core::path_exists(folder / kReportFile);
}

void write_report(const CompareResults& results, const std::filesystem::path& folder) {
  // All is made before anything is written, so that no error leaves half a report.
  std::vector<std::pair<const char*, std::string>> files = {{kResultsFile, to_json(results)},
                                                            {"figure.svg", figure_svg(results)},
                                                            {"figure-compact.svg", compact_figure_svg(results)},
                                                            {"figure.csv", figure_csv(results)},
                                                            {kReportFile, report_html(results)}};
  for (const MethodResults& method : results.methods) {
    std::string drawn = draw_attention(method.attention, print_theme(), true);
    if (drawn.empty()) continue;
    files.emplace_back("attention.svg", std::move(drawn));
    break;
  }
  core::make_folder(folder);
  for (const auto& [name, content] : files) core::write_file(folder / name, content);
}

}  // namespace alibi::report
