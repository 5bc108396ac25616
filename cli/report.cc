// alibi report: rebuilds the report of one or several comparisons from their results.
#include <fmt/format.h>

#include <filesystem>
#include <memory>

#include "commands.h"
#include "common.h"
#include "core/check.h"
#include "core/files.h"
#include "formats/json.h"
#include "report/html.h"
#include "report/json.h"
#include "report/merge.h"
#include "report/tables.h"

namespace alibi::cli {
namespace {

struct ReportCommand : CommonOptions {
  std::vector<std::string> inputs;
  std::string out = "alibi-report";
  bool overwrite = false;
};

/// Reads a folder of `alibi compare`, or its results.json. LABEL= may precede it.
report::NamedResults read_results(const std::string& input) {
  std::filesystem::path file = input;
  std::string label;
  if (const size_t sign = input.find('='); sign != std::string::npos && !core::path_exists(file)) {
    label = input.substr(0, sign);
    file = input.substr(sign + 1);
    check_usage(!label.empty() && label.find('@') == std::string::npos,
                "[report] the label of '{}' is '{}', expected one or more words without @", input, label);
  }
  if (core::path_exists(file) && core::is_folder(file)) file /= "results.json";
  check(core::path_exists(file), "[report] {} does not exist; expected the results that `alibi compare` writes",
        file.string());
  return {input, report::results_from_json(core::read_file(file, formats::kMaxJsonBytes), file.string()), label};
}

/// Whether the other report contains all runs of the first one with the same results.
bool is_within(const report::NamedResults& first, const report::NamedResults& other) {
  try {
    return report::merge({first, other}).runs_done() == other.results.runs_done();
  } catch (const Error&) {  // they cannot be merged
    return false;
  }
}

/// A report may be replaced by one with the same runs or more. A report of other results is kept.
void check_replaces_nothing(const ReportCommand& options, const CompareResults& results) {
  if (options.overwrite || !report::holds_report(options.out)) return;
  const bool same = core::path_exists(std::filesystem::path(options.out) / "results.json") &&
                    is_within(read_results(options.out), {"the new report", results, ""});
  check_usage(same,
              "[report] {} contains a report of other results; choose another folder with --out, or replace it "
              "with --overwrite",
              options.out);
}

void run_report(ReportCommand& options) {
  check_output_folder(options.out, "--out", {});  // a report may be an input and be replaced by one with more runs
  options.apply();
  std::vector<report::NamedResults> parts;
  for (const std::string& input : options.inputs) parts.push_back(read_results(input));
  const CompareResults results = report::merge(parts);
  hold_output_folder(options.out);
  check_replaces_nothing(options, results);
  report::write_report(results, options.out);
  say("{}\n", report::comparison_text(results));
  say("Report: {}\n", (std::filesystem::path(options.out) / "report.html").string());
  if (!options.json.empty()) options.write_json(report::to_json(results));
}

}  // namespace

void add_report(CLI::App& app) {
  auto options = std::make_shared<ReportCommand>();
  Command command(app, "report", "Rebuild a comparison report, or merge several into one");
  command.texts(
      options->inputs, true,
      "Folders of `alibi compare`, or their results.json; LABEL=FOLDER adds LABEL to the names of its methods",
      "RESULTS");
  command.text("-o,--out", options->out, "DIR", "Output folder for report.html, figure.svg and results.json");
  command.flag("--overwrite", options->overwrite,
               "Replace the report in the output folder, even if it shows other results");
  options->add_to(command);
  command.examples(
      "  alibi report alibi-compare\n"
      "  alibi report seeds-0-2/ seeds-3-5/ --out all-seeds\n"
      "  alibi report compared/ \"distance 32=t5-32/\" --out both-t5");
  command.runs([options] { run_report(*options); });
}

}  // namespace alibi::cli
