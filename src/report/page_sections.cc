#include "report/page_sections.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <string_view>

#include "core/format.h"
#include "report/markup.h"
#include "report/summary.h"
#include "report/svg.h"

namespace alibi::report {

namespace {

std::string fact(std::string_view name, const std::string& value, const std::string& more = "") {
  return fmt::format("<div><dt>{}</dt><dd>{}{}</dd></div>\n", name, escape_markup(value),
                     more.empty() ? "" : fmt::format(" <span>{}</span>", escape_markup(more)));
}

std::string setting(std::string_view name, const std::string& value) {
  if (value.empty()) return "";
  return fmt::format("<tr><th scope=\"row\">{}</th><td>{}</td></tr>\n", escape_markup(name), escape_markup(value));
}

/// The held-out files, with what was scored of each.
std::string held_out_table(const HeldOut& held_out) {
  if (held_out.files.empty()) return "";
  std::string out = fmt::format(
      "<details><summary>Held-out text: {} bytes scored, in {} files</summary>\n<div "
      "class=\"settings\"><table>\n<tbody>\n",
      core::format_integer(held_out.bytes), core::format_integer(static_cast<int64_t>(held_out.files.size())));
  for (const HeldOutFile& file : held_out.files) {
    out += setting(file.name, fmt::format("{} of {} bytes", core::format_integer(file.scored_bytes),
                                          core::format_integer(file.bytes)));
  }
  return out + "</tbody></table></div></details>\n";
}

/// Prompt and sample as one text, cut where the prompt ends and where the training length was reached.
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
    out += fmt::format("<span class=\"passed\">here the text is {} tokens long, the training length</span>",
                       core::format_integer(train_length));
    out += part("past prompt", limit, prompt_end) + part("past", std::max(limit, prompt_end), text.size());
  }
  return out;
}

}  // namespace

std::string facts_section(const CompareResults& results) {
  std::string out = "<dl class=\"facts\">\n";
  const std::vector<int64_t> lengths = all_lengths(results);
  out += fact("Trained at", core::format_integer(results.train_length) + " tokens", "in each window");
  if (!lengths.empty()) {
    out += fact("Tested up to", core::format_integer(lengths.back()) + " tokens",
                core::format_multiple(lengths.back(), results.train_length) + "× the training length");
  }
  if (results.parameters > 0) {
    out += fact("Model", core::format_count(static_cast<double>(results.parameters)) + " parameters",
                results.preset.empty() ? "" : results.preset + " preset");
  }
  if (results.train_bytes > 0) {
    out += fact("Text", core::format_bytes(results.train_bytes),
                "and " + core::format_bytes(results.valid_bytes) + " held out");
  }
  if (!results.tokenizer.empty()) {
    const bool bytes = results.tokenizer == "byte";
    out += fact("Tokenizer", results.tokenizer,
                bytes ? "" : core::format_integer(results.vocab_size) + " different tokens");
  }
  if (!results.methods.empty() && results.methods[0].train_tokens > 0) {
    out += fact("Training", core::format_count(static_cast<double>(results.methods[0].train_tokens)) + " tokens",
                "per method, same batches");
  }
  if (results.seconds > 0) {
    out +=
        fact("Took", core::format_duration(results.seconds),
             results.threads > 0 ? fmt::format("{} thread{}", results.threads, results.threads == 1 ? "" : "s") : "");
  }
  return out + "</dl>\n";
}

std::string samples_section(const CompareResults& results) {
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

std::string settings_section(const CompareResults& results) {
  std::string out;
  if (!results.command.empty()) {
    out += fmt::format("<p>To repeat it:</p>\n<pre><code>{}</code></pre>\n", escape_markup(results.command));
  }
  out += "<div class=\"settings\"><table>\n<tbody>\n";
  // What the caller's own settings already say is not said twice.
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

}  // namespace alibi::report
