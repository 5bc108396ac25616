#include "report/html.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>
#include <utility>
#include <vector>

#include "core/files.h"
#include "core/format.h"
#include "report/attention_chart.h"
#include "report/figures.h"
#include "report/json.h"
#include "report/markup.h"
#include "report/page_style.h"
#include "report/summarize.h"
#include "report/summary.h"
#include "report/svg.h"
#include "report/tables.h"
#include "report/verdict.h"

namespace alibi::report {

namespace {

constexpr const char* kResultsFile = "results.json";
constexpr const char* kReportFile = "report.html";
constexpr const char* kPassed = "<span class=\"passed\">";  // where a sample leaves the training length

std::string figure(const LineChart& chart, const std::string& caption) {
  return fmt::format("<figure class=\"lines\">\n{}<figcaption>{}{}</figcaption>\n</figure>\n",
                     draw(chart, page_theme(), false), caption,
                     chart.gaps.empty() ? "" : " " + escape_markup(chart.gaps));
}

std::string folded(const char* summary, const Table& table) {
  return fmt::format("<details><summary>{}</summary>\n{}</details>\n", summary, to_html(table));
}

/// The verdict as HTML. A no-break space keeps "15 %" on one line.
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

std::string fact(std::string_view name, const std::string& value, const std::string& more = "") {
  return fmt::format("<div><dt>{}</dt><dd>{}{}</dd></div>\n", name, escape_markup(value),
                     more.empty() ? "" : fmt::format(" <span>{}</span>", escape_markup(more)));
}

std::string setting(std::string_view name, const std::string& value) {
  if (value.empty()) return "";
  return fmt::format("<tr><th scope=\"row\">{}</th><td>{}</td></tr>\n", escape_markup(name), escape_markup(value));
}

/// The held-out files and the number of bytes scored in each.
std::string held_out_table(const HeldOut& held_out) {
  if (held_out.files.empty()) return "";
  std::string out = fmt::format(
      "<details><summary>Held-out text: {} bytes scored, in {} file{}</summary>\n<div "
      "class=\"settings\"><table>\n<tbody>\n",
      core::format_integer(held_out.bytes), core::format_integer(static_cast<int64_t>(held_out.files.size())),
      held_out.files.size() == 1 ? "" : "s");
  for (const HeldOutFile& file : held_out.files) {
    out += setting(file.name, fmt::format("{} of {} bytes", core::format_integer(file.scored_bytes),
                                          core::format_integer(file.bytes)));
  }
  return out + "</tbody></table></div></details>\n";
}

/// Prompt and sample as one text, divided at the end of the prompt and at the training length.
std::string sample_text(const MethodResults& method, int64_t train_length) {
  const std::string text = method.sample_prompt + method.sample;
  const int64_t reached = method.sample_bytes_at_train_length < 0 ? train_length : method.sample_bytes_at_train_length;
  const size_t prompt_end = method.sample_prompt.size();
  const size_t limit = character_start(text, static_cast<size_t>(std::max<int64_t>(reached, 0)));
  const auto part = [&](const char* css, size_t begin, size_t end) {
    if (begin >= end) return std::string();
    return fmt::format("<span class=\"{}\">{}</span>", css,
                       visible_markup(std::string_view(text).substr(begin, end - begin)));
  };
  std::string out = part("prompt", 0, std::min(prompt_end, limit)) + part("within", prompt_end, limit);
  if (limit < text.size()) {
    out += fmt::format("{}end of the training length, {} tokens</span>", kPassed, core::format_integer(train_length));
    out += part("past prompt", limit, prompt_end) + part("past", std::max(limit, prompt_end), text.size());
  }
  return out;
}

std::string facts_of(const CompareResults& results) {
  std::string out = "<dl class=\"facts\">\n";
  const std::vector<int64_t> lengths = all_lengths(results);
  out += fact("Trained at", training_lengths(results) + " tokens", "in each window");
  if (!lengths.empty()) {
    out += fact("Tested up to", core::format_integer(lengths.back()) + " tokens",
                core::format_multiple(lengths.back(), results.train_length) +
                    (has_one_training_length(results) ? "× the training length" : "× the shortest training length"));
  }
  if (results.parameters > 0) {
    out += fact("Model", core::format_count(static_cast<double>(results.parameters)) + " parameters",
                results.preset.empty() ? "" : results.preset + " preset");
  }
  if (results.train_bytes > 0) {
    const std::string scored = results.held_out.bytes > 0 ? core::format_bytes(results.held_out.bytes) + " of " : "";
    out += fact("Training text", core::format_bytes(results.train_bytes),
                fmt::format("{}{} of held-out text scored", scored, core::format_bytes(results.valid_bytes)));
  }
  if (!results.tokenizer.empty()) {
    const bool bytes = results.tokenizer == "byte";
    out += fact("Tokenizer", results.tokenizer,
                bytes ? "" : core::format_integer(results.vocab_size) + " different tokens");
  }
  if (!results.methods.empty() && results.methods[0].train_tokens > 0) {
    out += fact("Training", core::format_count(static_cast<double>(results.methods[0].train_tokens)) + " tokens",
                "per method, with the same batches");
  }
  if (results.seconds > 0) {
    out +=
        fact("Took", core::format_duration(results.seconds),
             results.threads > 0 ? fmt::format("{} thread{}", results.threads, results.threads == 1 ? "" : "s") : "");
  }
  return out + "</dl>\n";
}

std::string samples_of(const CompareResults& results) {
  std::string out;
  for (const MethodResults& method : results.methods) {
    if (method.sample.empty() && method.sample_note.empty()) continue;
    out += fmt::format("<h3>{}{}</h3>\n", marker_picture(method.name, page_theme()), escape_markup(method.name));
    if (!method.sample.empty()) {
      out += fmt::format("<div class=\"text\" tabindex=\"0\" role=\"region\" aria-label=\"Text by {}\">{}</div>\n",
                         escape_markup(method.name), sample_text(method, results.train_length));
    }
    if (!method.sample_note.empty())
      out += fmt::format("<p class=\"note\">{}</p>\n", escape_markup(method.sample_note));
  }
  return out;
}

std::string settings_of(const CompareResults& results) {
  std::string out;
  if (!results.command.empty()) {
    out += fmt::format("<p>Command that repeats this comparison:</p>\n<pre><code>{}</code></pre>\n",
                       escape_markup(results.command));
  }
  out += "<div class=\"settings\"><table>\n<tbody>\n";
  // A fact that the caller's own settings contain is not repeated.
  const auto add = [&](std::string_view name, const std::string& value) {
    const bool given = std::any_of(results.settings.begin(), results.settings.end(), [&](const auto& entry) {
      return std::equal(name.begin(), name.end(), entry.first.begin(), entry.first.end(), [](char a, char b) {
        return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
      });
    });
    if (!given) out += setting(name, value);
  };
  const auto corpus = [](int64_t bytes, int64_t files) {
    if (bytes <= 0) return std::string();
    return core::format_integer(bytes) + " bytes" +
           (files > 0 ? fmt::format(" in {} file{}", core::format_integer(files), files == 1 ? "" : "s") : "");
  };
  add("Version", results.version.empty() ? "" : "alibi " + results.version);
  add("Machine", results.machine);
  add("Threads", results.threads > 0 ? fmt::format("{}", results.threads) : "");
  add("Seed", fmt::format("{}", results.seed));
  add("Started", results.started);
  add("Text", results.corpus_name);
  add("Training text", corpus(results.train_bytes, results.train_files));
  add("Held-out text", corpus(results.valid_bytes, results.valid_files));
  for (const auto& [name, value] : results.settings) out += setting(name, value);
  for (const MethodResults& method : results.methods) out += setting(method.name + " model", method.model_folder);
  return out + "</tbody></table></div>\n" + held_out_table(results.held_out);
}

std::string perplexity_section(const CompareResults& results) {
  const std::vector<int64_t> lengths = all_lengths(results);
  const bool is_past = !lengths.empty() && lengths.back() > results.train_length;
  const char* where = !has_one_training_length(results)
                          ? " The number after @ is the length at which a model was trained."
                      : is_past ? " The vertical line marks the training length. Everything to its right is longer "
                                  "than anything a model saw in training."
                                : "";
  const std::string caption = fmt::format(
      "Each model was trained on windows of {} tokens ({}) and then evaluated on the same held-out tokens in windows "
      "of each length.{}",
      training_lengths(results), seeds_text(results), where);
  std::string body = figure(perplexity_chart(results), caption) + "<h3>The numbers</h3>\n" +
                     to_html(perplexity_table(results)) + to_html(bits_table(results));
  const Table differences = difference_table(results, all_lengths(results));
  if (results.methods.size() > 1 && !differences.rows.empty()) {  // none if no method has learned
    body += folded("Differences between methods", differences);
  }
  body += folded("All numbers: loss, intervals, bits per byte, tokens, speed", details_table(results));
  return section("perplexity", "Perplexity against evaluation length", body);
}

std::string cost_section(const CompareResults& results) {
  std::string body;
  if (const std::vector<BarChart> charts = cost_charts(results); !charts.empty()) {
    body += "<figure class=\"bars\">\n";
    for (const BarChart& chart : charts) body += draw(chart, page_theme());
    body += "</figure>\n";
  }
  if (const std::vector<WayToRead> ways = ways_to_read(results); !ways.empty()) {
    body += "<h3>Non-overlapping windows, sliding windows and one pass</h3>\n" + to_html(ways_table(results, ways));
  }
  const bool is_timed = !results.speed.empty();
  body += "<h3>The numbers</h3>\n" + (is_timed ? to_html(speed_table(results)) : "");
  if (const std::string note = speed_note(results); !note.empty()) {
    body += "<p class=\"note\">" + escape_markup(note) + "</p>\n";
  }
  return section("cost", is_timed ? "Speed and memory" : "Memory", body + to_html(cost_table(results)));
}

std::string loss_section(const CompareResults& results) {
  const LineChart chart = loss_chart(results);
  if (chart.series.empty()) return "";
  return section("loss", "Training",
                 figure(chart,
                        "Each point is the mean training loss of the updates since the previous point. All methods saw "
                        "the same batches in the same order."));
}

/// Shows whether distant text helps: the same targets with more and more context.
std::string context_section(const CompareResults& results) {
  const LineChart chart = context_chart(results);
  if (chart.series.empty()) return "";
  std::string text =
      "<p>The same held-out tokens, in groups of 16, are predicted with 16, 32, 64, ... tokens of context. If a "
      "curve keeps falling to the right of the training length, the method gains from text farther away than any "
      "that it saw in training. If a curve rises there, the method fails past its training length.</p>\n";
  text += figure(chart,
                 "Only the last 16 tokens of each window are scored, so the scored tokens are the same at "
                 "every length.");
  const std::vector<std::string> notes = early_token_notes(results);
  if (!notes.empty()) text += "<ul>\n";
  for (const std::string& note : notes) text += "<li>" + escape_markup(note) + "</li>\n";
  if (!notes.empty()) text += "</ul>\n";
  return section("context", "Does more context help?", text);
}

std::string position_section(const CompareResults& results) {
  const LineChart chart = position_chart(results);
  if (chart.series.empty()) return "";
  int64_t length = 0;
  for (const MethodResults& method : results.methods) length = std::max(length, method.per_position_length);
  const std::string early = early_loss_text(results);
  const std::string text = fmt::format(
      "<p>{}This figure shows the loss at each position of windows of {} tokens. Different positions hold different "
      "text, so compare the methods at the same position. If all curves rise together, the text is the cause.</p>\n",
      early.empty()
          ? ""
          : fmt::format("The first tokens of a window have almost no context, so their loss is high: {}. This "
                        "is the <em>early token curse</em>. Longer windows contain fewer such tokens, and "
                        "that alone lowers perplexity. ",
                        escape_markup(early)),
      core::format_integer(length));
  return section("positions", early.empty() ? "Loss by position" : "Loss by position: the early token curse",
                 text +
                     figure(chart,
                            "Positions count from 1. Each point is a mean over neighbouring positions; points "
                            "farther right cover more positions.") +
                     folded("The same numbers as a table", position_table(results)));
}

std::string attention_section(const CompareResults& results) {
  for (const MethodResults& method : results.methods) {
    const std::string drawn = draw_attention(method.attention, method.name, page_theme(), false);
    if (drawn.empty()) continue;
    return section(
        "attention", "Where the heads look",
        fmt::format(
            "<p>The mean attention weight of a key at each distance, in windows of {} held-out tokens. The model "
            "is the one that {} trained from the first seed. The dashed line is the weight that the slope of the "
            "head alone would give. {}</p>\n",
            core::format_integer(method.attention.length), escape_markup(method.name),
            has_not_learned(results, method)
                ? "This model has not learned yet, so the figure says nothing about a trained one."
                : "Where the two lines differ, the model has learned which keys to prefer.") +
            "<figure>\n" + drawn + "</figure>\n");
  }
  return "";
}

std::string sample_section(const CompareResults& results) {
  const std::string samples = samples_of(results);
  if (samples.empty()) return "";
  const bool is_past = samples.find(kPassed) != std::string::npos;
  return section("samples", is_past ? "What the models write past their training length" : "What the models write",
                 "<p>Each model continues the same prompt (bold). Bytes that are not valid text appear as codes, for "
                 "example <i class=\"byte\">\\x1b</i> for the byte 0x1b.</p>\n" +
                     samples);
}

}  // namespace

std::string report_html(const CompareResults& results) {
  const std::vector<int64_t> lengths = all_lengths(results);
  const std::string title = fmt::format("Trained at {} tokens, tested at {}", training_lengths(results),
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
  std::vector<std::string> methods;
  for (const MethodResults& method : results.methods) methods.push_back(method.name);
  out += "<style>" + page_style(methods) + "</style>\n</head>\n<body>\n";
  out +=
      fmt::format("<header>\n<p class=\"kind\">Train short, test long</p>\n<h1>{}</h1>\n<p class=\"verdict\">{}</p>\n",
                  title, verdict_markup(results));
  out += facts_of(results) + "</header>\n<main>\n";
  out += perplexity_section(results) + context_section(results) + position_section(results) + cost_section(results) +
         loss_section(results) + attention_section(results) + sample_section(results) +
         section("settings", "Settings and command", settings_of(results));
  out +=
      "</main>\n<footer><p>This page was written by <code>alibi compare</code>. Its numbers are also in "
      "<code>results.json</code>, in the same folder.\nALiBi was introduced by Press, Smith and "
      "Lewis,\n<cite>Train Short, Test Long: Attention with Linear Biases Enables Input Length "
      "Extrapolation</cite>, ICLR 2022.</p></footer>\n</body>\n</html>\n";
  return out;
}

bool holds_report(const std::filesystem::path& folder) {
  return core::path_exists(folder / kResultsFile) || core::path_exists(folder / kReportFile);
}

void write_report(const CompareResults& results, const std::filesystem::path& folder) {
  // All files are built before the first is written, so an error does not leave an incomplete report.
  std::vector<std::pair<const char*, std::string>> files = {{kResultsFile, to_json(results)},
                                                            {"figure.svg", figure_svg(results)},
                                                            {"figure.csv", figure_csv(results)},
                                                            {kReportFile, report_html(results)}};
  for (const MethodResults& method : results.methods) {
    std::string drawn = draw_attention(method.attention, method.name, print_theme(), true);
    if (drawn.empty()) continue;
    files.emplace_back("attention.svg", std::move(drawn));
    break;
  }
  core::make_folder(folder);
  for (const auto& [name, content] : files) core::write_file(folder / name, content);
}

}  // namespace alibi::report
