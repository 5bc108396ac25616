// alibi info: what a model folder holds, and what the CPU offers.
#include <fmt/format.h>

#include <cstdlib>
#include <memory>
#include <nlohmann/json.hpp>
#include <variant>

#include "alibi/attention.h"
#include "alibi/language_model.h"
#include "alibi/runtime.h"
#include "commands.h"
#include "common.h"
#include "core/check.h"
#include "model/mpt_folder.h"
#include "model/position.h"

namespace alibi::cli {
namespace {

struct InfoCommand : CommonOptions {
  std::string model;
  bool cpu = false;
};

/// What the kernels run on.
nlohmann::ordered_json describe_cpu() {
  nlohmann::ordered_json offered = nlohmann::ordered_json::array();
  for (const Isa isa : available_isas()) offered.push_back(name_of(isa));
  const char* forced = std::getenv("ALIBI_ISA");
  return {{"cpu", cpu_name()},
          {"threads", threads()},
          {"isa", name_of(isa())},
          {"isas", offered},
          {"ALIBI_ISA", forced == nullptr ? "not set" : forced}};
}

nlohmann::ordered_json describe(const LanguageModel& model) {
  const LanguageModelConfig& config = model.config();
  const TransformerConfig& t = config.transformer;
  nlohmann::ordered_json json = {{"position", name_of(t.position)},
                                 {"train_length", config.train_length},
                                 {"parameters", model.parameter_count()},
                                 {"tokenizer", model.tokenizer().kind()},
                                 {"vocab_size", config.vocab_size},
                                 {"layers", t.layers},
                                 {"d_model", t.d_model},
                                 {"heads", t.heads},
                                 {"kv_heads", t.key_heads()},
                                 {"head_dim", t.head_dim()},
                                 {"ffn_dim", t.ffn_dim()},
                                 {"activation", name_of(t.activation)},
                                 {"norm", name_of(t.norm)},
                                 {"causal", t.causal},
                                 {"final_norm", t.final_norm},
                                 {"embedding_scale", config.embedding_scale},
                                 {"dropout", t.dropout},
                                 {"attention_dropout", t.attention_dropout},
                                 {"activation_dropout", t.activation_dropout},
                                 {"embedding_dropout", t.embedding_dropout}};
  if (const auto mask = config.mask_token()) {
    json["bidirectional"] = name_of(t.bidirectional);
    json["mask_token"] = *mask;
  }
  if (config.adaptive) {
    auto& bands = json["bands"] = nlohmann::ordered_json::array();
    for (const VocabularyBand& band : config.bands()) {
      bands.push_back(fmt::format("{}-{}:{}", band.first, band.first + band.words - 1, band.width));
    }
    json["adaptive_dropout"] = config.adaptive->dropout;
  }
  if (t.window > 0) json["window"] = t.window;
  if (t.position == Position::alibi) {
    json["alibi_bias_max"] = t.alibi_bias_max;
    const std::vector<std::vector<float>> layers = model.slopes();
    json["slope_training"] = name_of(t.slope_training);
    if (t.slope_training == SlopeTraining::fixed) {
      json["slopes"] = layers.empty() ? std::vector<float>() : layers.front();
    } else {
      json["slopes"] = layers;
    }
  }
  for (const PositionField& field : make_position(t)->fields()) {
    std::visit([&](auto member) { json[field.name] = t.*member; }, field.member);
  }
  return json;
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
  check_usage(options.cpu || !options.model.empty(), "[info] MODEL is required, or --cpu");
  if (options.cpu) {
    const nlohmann::ordered_json cpu = describe_cpu();
    for (const auto& [key, value] : cpu.items()) say("{:<16} {}\n", key, as_text(value));
    if (options.model.empty()) return options.write_json(cpu);
  }
  const LanguageModel model = LanguageModel::load(options.model);
  nlohmann::ordered_json json = {{"model", options.model}};
  const std::vector<std::string> differences = read_mpt_config(options.model).differences;
  json["mpt"] = differences.empty();
  if (!differences.empty()) json["differences_from_mpt"] = differences;
  json.update(describe(model));
  for (const auto& [key, value] : json.items()) say("{:<16} {}\n", key, as_text(value));

  auto& tensors = json["tensors"] = nlohmann::ordered_json::array();
  for (const Parameter* parameter : model.parameters()) {
    tensors.push_back(
        {{"name", parameter->name}, {"shape", parameter->value.shape()}, {"dtype", name_of(parameter->value.dtype())}});
  }
  options.write_json(json);
}

}  // namespace

void add_info(CLI::App& app) {
  auto options = std::make_shared<InfoCommand>();
  Command command(app, "info", "Show what a model folder holds, or what the CPU offers");
  command.model(options->model, /*required=*/false);
  command.flag("--cpu", options->cpu, "Show the instruction set in use and what this CPU offers");
  options->add_to(command);
  command.examples(
      "  alibi info model/\n"
      "  alibi info model/ --json info.json      (also the name and shape of every tensor)\n"
      "  alibi info --cpu");
  command.runs([options] { run_info(*options); });
}

}  // namespace alibi::cli
