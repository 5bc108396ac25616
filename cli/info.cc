// alibi info: shows the content of a model folder, or the instruction sets of the CPU.
#include <fmt/format.h>

#include <cstdlib>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>

#include "alibi/attention.h"
#include "alibi/runtime.h"
#include "commands.h"
#include "common.h"
#include "core/check.h"
#include "core/format.h"
#include "formats/options.h"
#include "model/config_fields.h"
#include "model/families/model_files.h"
#include "model/parameters.h"
#include "nn/products.h"

namespace alibi::cli {
namespace {

struct InfoCommand : CommonOptions {
  std::string model;
  bool cpu = false;
};

/// The CPU that the kernels run on.
nlohmann::ordered_json describe_cpu() {
  nlohmann::ordered_json offered = nlohmann::ordered_json::array();
  for (const Isa isa : available_isas()) offered.push_back(name_of(isa));
  const char* forced = std::getenv("ALIBI_ISA");
  return {{"cpu", cpu_name()},
          {"threads", threads()},
          {"isa", name_of(isa())},
          {"isas", offered},
          {"products", nn::product_provider().description()},
          {"ALIBI_ISA", forced == nullptr ? "not set" : forced},
          {"precision", name_of(best_precision())},
          {"precision_reason", why_best_precision()}};
}

nlohmann::ordered_json describe(const model::ModelFiles& files) {
  const LanguageModelConfig& config = files.config;
  const TransformerConfig& t = config.transformer;
  nlohmann::ordered_json json = {{"position", name_of(t.position)},
                                 {"train_length", config.train_length},
                                 {"parameters", config.parameter_count()},
                                 {"tokenizer", files.tokenizer ? files.tokenizer->kind() : "none"}};
  for (const model::ConfigField& field : model::config_fields()) {
    if (field.more.json && field.belongs_to(t.position)) json[field.name] = formats::json_of(field.get(config));
  }
  json["kv_heads"] = t.key_heads();
  json["head_dim"] = t.head_dim();
  json["ffn_dim"] = t.ffn_dim();
  if (const auto mask = config.mask_token()) {
    json["mask_token"] = *mask;
  } else {
    json.erase("bidirectional");
  }
  if (config.adaptive) {
    auto& bands = json["bands"] = nlohmann::ordered_json::array();
    for (const VocabularyBand& band : config.bands()) {
      bands.push_back(fmt::format("{}-{}:{}", band.first, band.first + band.words - 1, band.width));
    }
    json["adaptive_dropout"] = config.adaptive->dropout;
  }
  if (t.attention.sliding_window == 0) json.erase("sliding_window");
  const std::vector<std::vector<float>> layers = files.slopes();
  if (!layers.empty()) {
    if (t.attention.slope_training == SlopeTraining::fixed) {
      json["alibi_slopes"] = layers.front();
    } else {
      json["alibi_slopes"] = layers;
    }
  }
  return json;
}

/// Bytes of the weights in memory by their data type.
std::map<DType, int64_t> weight_bytes(const model::ModelFiles& files) {
  std::map<DType, int64_t> bytes;
  const std::vector<model::ParameterSpec> parameters = model::parameter_specs(files.config);
  const std::vector<DType> types = files.types();
  for (size_t i = 0; i < parameters.size(); ++i) {
    bytes[types[i]] += parameters[i].elements() / numbers_in(types[i]) * static_cast<int64_t>(size_of(types[i]));
  }
  return bytes;
}

std::string as_text(const nlohmann::ordered_json& value) {
  if (value.is_string()) return value.get<std::string>();
  if (value.is_number_float()) return fmt::format("{:.6g}", value.get<double>());
  if (value.is_array()) {
    std::string text;
    for (const auto& item : value) {
      if (!text.empty()) text += item.is_array() ? " | " : " ";
      text += as_text(item);
    }
    return text;
  }
  return value.dump();
}

void run_info(InfoCommand& options) {
  options.apply();
  check_usage(options.cpu || !options.model.empty(), "[info] MODEL is missing; give a model folder or --cpu");
  if (options.cpu) {
    const nlohmann::ordered_json cpu = describe_cpu();
    for (const auto& [key, value] : cpu.items()) say("{:<16} {}\n", key, as_text(value));
    if (options.model.empty()) return options.write_json(cpu);
  }
  const std::filesystem::path path = options.model;
  const model::ModelFiles files = model::open_model(path);
  nlohmann::ordered_json json = {{"model", options.model}, {"family", files.family}};
  if (files.is_own) json["opened_as"] = files.opened_as.empty() ? "alibi" : files.opened_as;
  if (!files.differences.empty()) json["differences"] = files.differences;
  if (!files.notes.empty()) json["notes"] = files.notes;
  if (!files.warnings.empty()) json["warnings"] = files.warnings;
  json.update(describe(files));
  std::vector<std::string> weights;
  int64_t all_bytes = 0;
  for (const auto& [type, bytes] : weight_bytes(files)) {
    weights.push_back(fmt::format("{} {}", name_of(type), core::format_bytes(bytes)));
    all_bytes += bytes;
  }
  json["weights"] = fmt::format("{}", fmt::join(weights, ", "));
  json["weight_bytes"] = all_bytes;
  for (const auto& [key, value] : json.items()) say("{:<16} {}\n", key, as_text(value));

  auto& tensors = json["tensors"] = nlohmann::ordered_json::array();
  const std::vector<model::ParameterSpec> parameters = model::parameter_specs(files.config);
  const std::vector<DType> types = files.types();
  for (size_t i = 0; i < parameters.size(); ++i) {
    tensors.push_back({{"name", parameters[i].name}, {"shape", parameters[i].shape}, {"dtype", name_of(types[i])}});
  }
  options.write_json(json);
}

}  // namespace

void add_info(CLI::App& app) {
  auto options = std::make_shared<InfoCommand>();
  Command command(app, "info", "Show the configuration of a model folder, or the instruction sets of the CPU");
  command.model(options->model, /*required=*/false);
  command.flag("--cpu", options->cpu, "Show the instruction set in use and those that this CPU supports");
  options->add_to(command);
  command.examples(
      "  alibi info model/\n"
      "  alibi info model/ --json info.json      (includes the name and shape of every tensor)\n"
      "  alibi info --cpu");
  command.runs([options] { run_info(*options); });
}

}  // namespace alibi::cli
