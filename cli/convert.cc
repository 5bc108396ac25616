// alibi convert: writes a model in the format of another program.
#include "model/families/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <vector>

#include "alibi/language_model.h"
#include "commands.h"
#include "common.h"
#include "core/check.h"
#include "core/files.h"
#include "core/locks.h"
#include "model/own_folder.h"
#include "output.h"

namespace alibi::cli {
namespace {

struct ConvertCommand : CommonOptions {
  std::string model, out, to, type = "f16";
  bool overwrite = false;

  /// The format, which the name of the output says if no option does.
  std::string format() const {
    if (!to.empty()) return to;
    return std::filesystem::path(out).extension() == ".gguf" ? "gguf" : "hf";
  }
};

/// Checks and locks the output before the model is read.
void check_out(const ConvertCommand& options, const std::string& format) {
  const std::filesystem::path out = options.out;
  if (format == "gguf") {
    check_usage(options.overwrite || !core::replaced_file(out) || !core::path_exists(out),
                "[convert] {} exists; choose another file, or replace it with --overwrite", options.out);
    output_file(options.out, "OUT");
    return;
  }
  std::set<std::string> names = model::own_file_names();
  check_output_folder(options.out, "OUT", names);
  hold_output_folder(options.out);
  for (const std::string& name : names) {
    check_usage(options.overwrite || !core::path_exists(out / name),
                "[convert] {} contains {}; choose another folder, or replace the model in it with --overwrite",
                options.out, name);
  }
}

/// Returns the tensors that have another type than the one requested.
std::vector<model::OtherType> convert(const ConvertCommand& options, const std::string& format) {
  const bool is_gguf = core::path_exists(options.model) && !core::is_folder(options.model);
  if (format == "gguf" && is_gguf) return model::rewrite_gguf(options.model, options.out, options.type);
  const LanguageModel model = LanguageModel::load(options.model);
  if (format == "gguf") return model::write_gguf(model, options.out, options.type);
  format == "hf" ? model::write_for_transformers(model, options.out) : model::write_own(model, options.out);
  return {};
}

void run_convert(ConvertCommand& options) {
  options.apply();
  const std::string format = options.format();
  check_out(options, format);
  const std::vector<model::OtherType> others = convert(options, format);
  nlohmann::ordered_json types = nlohmann::ordered_json::object();
  for (const model::OtherType& other : others) types[other.tensor] = other.type;
  if (!others.empty()) {
    report_warning(fmt::format("{} matrices, such as {}, are {} and not {}, because their rows do not fill its blocks",
                               others.size(), others.front().tensor, others.front().type, options.type));
  }
  say("{}\n", options.out);
  nlohmann::ordered_json json = {{"model", options.model}, {"out", options.out}, {"format", format}};
  if (format == "gguf") json.update({{"type", options.type}, {"other_types", types}});
  options.write_json(json);
}

/// Returns what is wrong with a word that is not one of `choices`, or "".
std::string take_one_of(const std::vector<std::string>& choices, const std::string& word, std::string& value) {
  value = word;
  const bool known = std::find(choices.begin(), choices.end(), word) != choices.end();
  return known ? "" : fmt::format("is '{}', expected one of {}", word, fmt::join(choices, ", "));
}

}  // namespace

void add_convert(CLI::App& app) {
  auto options = std::make_shared<ConvertCommand>();
  Command command(app, "convert", "Write a model in the format of another program");
  command.model(options->model);
  command.text("OUT", options->out, "", "Folder (hf, alibi) or file (gguf) to write", {}, /*required=*/true);
  const std::vector<std::string> formats = {"hf", "gguf", "alibi"},
                                 types = {"f32", "f16", "bf16", "q8_0", "q4_0", "q4_k"};
  command.value(
      "--to", "FORMAT",
      "hf: a folder for transformers; gguf: a file for llama.cpp; alibi: a folder of alibi [gguf if OUT ends in "
      ".gguf, else hf]",
      [options, formats](const std::string& word) { return take_one_of(formats, word, options->to); });
  command.choices("--to", formats);
  command.value("--type", "TYPE", "Type of the weights in a GGUF file: f32, f16, bf16, q8_0, q4_0 or q4_k [f16]",
                [options, types](const std::string& word) { return take_one_of(types, word, options->type); });
  command.choices("--type", types);
  command.flag("--overwrite", options->overwrite, "Replace the model in OUT");
  options->add_to(command);
  command.examples(
      "  alibi convert model/ for-transformers/ --to hf\n"
      "  alibi convert model/ model.gguf --type q8_0\n"
      "  alibi convert bloom-f16.gguf bloom-q8_0.gguf --type q8_0");
  command.runs([options] { run_convert(*options); });
}

}  // namespace alibi::cli
