// alibi convert: writes a model in the format of another program.
#include "model/families/convert.h"

#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "alibi/language_model.h"
#include "commands.h"
#include "common.h"

namespace alibi::cli {
namespace {

struct ConvertCommand : CommonOptions {
  std::string model, out, to = "hf", type = "f16";
};

void run_convert(ConvertCommand& options) {
  options.apply();
  const LanguageModel model = LanguageModel::load(options.model);
  if (options.to == "hf") {
    model::write_for_transformers(model, options.out);
  } else {
    model::write_gguf(model, options.out, options.type);
  }
  say("{}\n", options.out);
  options.write_json(nlohmann::ordered_json{{"model", options.model}, {"out", options.out}, {"format", options.to}});
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
  command.text("OUT", options->out, "", "Folder (hf) or file (gguf) to write", true);
  const std::vector<std::string> formats = {"hf", "gguf"}, types = {"f32", "f16", "bf16", "q8_0"};
  command.value("--to", "FORMAT", "hf: a folder that transformers opens; gguf: a file for llama.cpp [hf]",
                [options, formats](const std::string& word) { return take_one_of(formats, word, options->to); });
  command.choices("--to", formats);
  command.value("--type", "TYPE", "Type of the weights in a GGUF file: f32, f16, bf16 or q8_0 [f16]",
                [options, types](const std::string& word) { return take_one_of(types, word, options->type); });
  command.choices("--type", types);
  options->add_to(command);
  command.examples(
      "  alibi convert model/ for-transformers/ --to hf\n"
      "  alibi convert model/ model.gguf --to gguf --type q8_0");
  command.runs([options] { run_convert(*options); });
}

}  // namespace alibi::cli
