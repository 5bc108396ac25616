#include "report/html.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "core/files.h"
#include "core/format.h"
#include "report/attention_chart.h"
#include "report/figures.h"
#include "report/json.h"
#include "report/map.h"
#include "report/markup.h"
#include "report/summary.h"
#include "report/tables.h"
#include "report/tasks.h"
#include "report/theme.h"
#include "report/verdict.h"

namespace alibi::report {

std::string_view page();  // page.html; CMake makes this function

namespace {

constexpr const char* kResultsFile = "results.json";
constexpr const char* kReportFile = "report.html";

/// Replaces each {{name}} of the template by its value. Values may contain braces.
std::string filled(std::string_view text, const std::map<std::string_view, std::string>& values) {
  std::string out;
  for (size_t at; (at = text.find("{{")) != std::string_view::npos;) {
    const size_t end = text.find("}}", at);
    out.append(text.substr(0, at)).append(values.at(text.substr(at + 2, end - at - 2)));
    text.remove_prefix(end + 2);
  }
  out += text;
  return out;
}

/// The colours of the methods as CSS variables. The figures refer to them.
std::string method_colors(const CompareResults& results, bool dark) {
  std::set<std::string> colors;
  const auto add = [&](const std::vector<MethodResults>& methods) {
    for (const MethodResults& method : methods) {
      const MethodStyle style = style_of(method.name);
      colors.insert(fmt::format(" --{0}: {1}; --{0}-text: {2};", style.name, dark ? style.dark_line : style.line,
                                dark ? style.dark_text : style.text));
    }
  };
  add(results.methods);
  for (const TaskResults& task : results.tasks) add(task.methods);
  return fmt::format("{}", fmt::join(colors, ""));
}

/// Explains the figure and says which values it does not show.
std::string figure_caption(const CompareResults& results, const LineChart& chart) {
  const std::string seeds = number_of_seeds(results.methods);
  const char* where = "";
  if (!has_one_training_length(results)) {
    where = " The number after @ is the length at which a model was trained.";
  } else if (const auto lengths = all_lengths(results); !lengths.empty() && lengths.back() > results.train_length) {
    where =
        " The vertical line marks the training length. Everything to its right is longer than anything a model saw in "
        "training.";
  }
  return fmt::format(
      "Each model was trained on windows of {} tokens ({}) and then evaluated on the same held-out tokens in windows "
      "of each length.{} {}",
      training_lengths(results),
      seeds == "1" ? fmt::format("once, from seed {}", results.seed) : fmt::format("from {} seeds", seeds), where,
      chart.gaps);
}

/// The attention figure of the first method that has one, or "".
std::string attention_of(const CompareResults& results, const Theme& theme, bool heading) {
  for (const MethodResults& method : results.methods) {
    std::string drawn = draw_attention(method.attention, method.name, theme, heading);
    if (!drawn.empty()) return drawn;
  }
  return "";
}

std::string prose(const std::string& text) { return core::replace_all(escape_markup(text), " %", "&nbsp;%"); }

/// A list of sentences, or "" if there are none.
std::string items(const std::vector<std::string>& sentences) {
  std::string list;
  for (const std::string& sentence : sentences) list += "<li>" + prose(sentence) + "</li>\n";
  return list.empty() ? "" : "<ul class=\"details\">\n" + list + "</ul>\n";
}

}  // namespace

std::string report_html(const CompareResults& results) {
  const std::vector<int64_t> lengths = all_lengths(results);
  const int64_t longest = lengths.empty() ? longest_of_tasks(results) : lengths.back();
  const LineChart chart = perplexity_chart(results);
  const Verdict said = verdict_of(results);
  return filled(page(), {{"title", fmt::format("Trained at {} tokens, tested at {}", training_lengths(results),
                                               core::format_integer(longest))},
                         {"verdict", prose(verdict(results))},
                         {"answer", prose(fmt::format("{}", fmt::join(said.answer, " ")))},
                         {"details", items(said.details)},
                         {"version", escape_markup(results.version)},
                         {"colors", method_colors(results, false)},
                         {"dark colors", method_colors(results, true)},
                         {"figure", draw(chart, page_theme(), false)},
                         {"caption", escape_markup(figure_caption(results, chart))},
                         {"attention", attention_of(results, page_theme(), false)},
                         {"without text", results.methods.empty() && !results.tasks.empty() ? " hidden=\"\"" : ""},
                         {"tasks", tasks_section(results)},
                         {"text", escape_markup(comparison_text(results))},
                         {"results", core::replace_all(to_json(results), "<", "\\u003c")}});
}

bool holds_report(const std::filesystem::path& folder) {
  return core::path_exists(folder / kResultsFile) || core::path_exists(folder / kReportFile);
}

void write_report(const CompareResults& results, const std::filesystem::path& folder) {
  // All files are built before the first is written, so an error does not leave an incomplete report.
  std::vector<std::pair<const char*, std::string>> files = {{kResultsFile, to_json(results)},
                                                            {kReportFile, report_html(results)}};
  if (!results.methods.empty() || results.tasks.empty()) {
    files.emplace_back("figure.svg", figure_svg(results));
    files.emplace_back("figure.csv", figure_csv(results));
  }
  if (const std::optional<LineChart> map = map_chart(results))
    files.emplace_back("map.svg", draw(*map, print_theme(), true));
  std::string attention = attention_of(results, print_theme(), true);
  if (!attention.empty()) files.emplace_back("attention.svg", std::move(attention));
  core::make_folder(folder);
  for (const auto& [name, content] : files) core::write_file(folder / name, content);
}

}  // namespace alibi::report
