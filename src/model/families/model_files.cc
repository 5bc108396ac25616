#include "model/families/model_files.h"

#include <algorithm>
#include <utility>

#include "core/atomic_update.h"
#include "core/check.h"
#include "core/warning.h"
#include "formats/gguf.h"
#include "formats/safetensors.h"
#include "formats/weight_types.h"
#include "model/families/own_as_family.h"
#include "model/families/write_back.h"
#include "model/own_folder.h"
#include "model/parameters.h"
#include "model/position.h"
#include "text/gguf_tokenizer.h"
#include "text/tokenizer_files.h"

namespace alibi::model {
namespace {

/// Checks that the folder exists, and reads its config.json.
formats::JsonObject read_config_file(const std::filesystem::path& folder) {
  check_model_folder(folder);
  return formats::read_json_object(folder / kConfigFile, kMaxConfigBytes);
}

/// Checked before anything is allocated for each layer.
void check_layers(const LanguageModelConfig& config, const formats::WeightSource& weights) {
  check(static_cast<size_t>(config.transformer.layers) <= weights.tensors().size(),
        "[model] {}: {} tensors, but the configuration says {} layers", fmt::join(weights.sources(), ", "),
        weights.tensors().size(), config.transformer.layers);
}

/// The tokenizer of another program's model, if it is right for the model. `source` is named in the error.
std::shared_ptr<const Tokenizer> fitting(std::shared_ptr<const Tokenizer> tokenizer, const LanguageModelConfig& config,
                                         const std::filesystem::path& source) {
  const int tokens = config.mask_token().value_or(config.vocab_size);
  check(!tokenizer || tokenizer->vocab_size() <= tokens, "[model] {}: the tokenizer has {} tokens, the model only {}",
        source.string(), tokenizer ? tokenizer->vocab_size() : 0, tokens);
  return tokenizer;
}

}  // namespace

ModelFiles::ModelFiles(const std::filesystem::path& path) {
  check(core::path_exists(path), "[model] {}: no such folder or file", path.string());
  core::is_folder(path) ? open_folder(path) : open_gguf(path);
}

void ModelFiles::open_folder(const std::filesystem::path& folder) {
  const formats::JsonObject json = read_config_file(folder);
  if (is_own_config(json)) {
    check_own_type(json);
    OwnFolder own(folder);
    config = own.config.model;
    family = "alibi";
    is_own = true;
    differences = family_of_own().folder.differences(config);
    if (differences.empty()) opened_as = family_of_own().name;
    for (std::vector<std::string>& tensors : own_tensors(config)) sources.push_back({std::move(tensors)});
    tokenizer = std::move(own.tokenizer);
    weights = std::make_shared<formats::Safetensors>(std::move(own.weights));
    return;
  }
  const Family& found = family_of_folder(json);
  check(!json.has("quantization_config"),
        "[config] {}quantization_config is set: weights that another program quantized are not supported; take the "
        "original model, or a GGUF file",
        json.where());
  weights = std::make_shared<formats::Safetensors>(folder);
  folder_ = folder;
  take(found, found.folder, json);
  if (core::path_exists(text::tokenizer_file(folder))) tokenizer = fitting(Tokenizer::load(folder), config, folder);
}

void ModelFiles::open_gguf(const std::filesystem::path& file) {
  auto gguf = std::make_shared<formats::Gguf>(file);
  const formats::JsonObject metadata = gguf->metadata();
  weights = std::move(gguf);
  const Family& found = family_of_gguf(metadata);
  take(found, found.gguf, metadata);
  tokenizer = fitting(text::tokenizer_from_gguf(metadata, file.string()), config, file);
  const auto type_of = [&](const std::string& name) { return formats::weight_type(weights->info(name).dtype); };
  for (const Source& source : sources) {
    const formats::WeightType* first = type_of(source.tensors.front());
    const auto differs = [&](const std::string& name) { return type_of(name) != first && !type_of(name)->is_plain(); };
    const auto other = std::find_if(source.tensors.begin(), source.tensors.end(), differs);
    if (other == source.tensors.end()) continue;
    notes.push_back(fmt::format("matrices whose parts have different types, such as {} ({}) and {} ({}), become q8_0",
                                source.tensors.front(), first->name, *other, type_of(*other)->name));
    break;
  }
}

void ModelFiles::take(const Family& found, const Layout& layout, const formats::JsonObject& description) {
  family = found.name;
  layout_ = &layout;
  config = config_of(layout, description, *weights, &warnings);
  apply_changes(description, config);
  check_layers(config, *weights);
  sources = sources_of(layout, *weights, config, parameter_specs(config));
  if (layout.interpolation != nullptr) interpolation = layout.interpolation(description);
}

std::shared_ptr<const OriginalFormat> ModelFiles::origin() const {
  if (folder_.empty()) return nullptr;
  return std::make_shared<FamilyFolder>(folder_, *layout_, weights, sources);
}

void ModelFiles::load(const std::vector<Parameter*>& parameters) const {
  check(parameters.size() == sources.size(), "[model] the model has {} parameters, its files {}", parameters.size(),
        sources.size());
  const std::vector<ParameterSpec> specs = parameter_specs(config);
  for (size_t i = 0; i < sources.size(); ++i) {
    parameters[i]->value = load_parameter(sources[i], specs[i], *weights, config);
  }
}

std::vector<DType> ModelFiles::types() const {
  const std::vector<ParameterSpec> specs = parameter_specs(config);
  std::vector<DType> types;
  for (size_t i = 0; i < sources.size(); ++i) types.push_back(type_of_parameter(sources[i], specs[i], *weights));
  return types;
}

std::vector<std::vector<float>> ModelFiles::slopes() const {
  const TransformerConfig& transformer = config.transformer;
  const Positions positions(transformer);
  std::vector<Parameter> own =
      make_parameters([&](const VisitParameter& visit) { positions.bias->declare(visit); }, std::nullopt);
  const std::vector<ParameterSpec> specs = parameter_specs(config);
  for (Parameter& parameter : own) {
    const auto spec = std::find_if(specs.begin(), specs.end(), [&](const auto& s) { return s.name == parameter.name; });
    parameter.value = load_parameter(sources[static_cast<size_t>(spec - specs.begin())], *spec, *weights, config);
  }
  return slopes_of(*positions.bias, transformer);
}

ModelFiles open_model(const std::filesystem::path& path) {
  if (core::path_exists(path) && !core::is_folder(path)) return ModelFiles(path);
  return core::read_atomically(path, kConfigFile, [](const std::filesystem::path& place) { return ModelFiles(place); });
}

LanguageModelConfig read_model_config(const std::filesystem::path& path) {
  if (!core::is_folder(path)) return open_model(path).config;
  const formats::JsonObject json = read_config_file(path);
  if (is_own_config(json)) return read_own_config(path).model;
  LanguageModelConfig config = config_of(family_of_folder(json).folder, json, formats::Safetensors(path));
  apply_changes(json, config);
  return config;
}

}  // namespace alibi::model

namespace alibi {

LanguageModel LanguageModel::load(const std::filesystem::path& path) { return load(path, {}); }

LanguageModel LanguageModel::load(const std::filesystem::path& path,
                                  const std::function<void(LanguageModelConfig&)>& adjust) {
  const auto load_from = [&](const std::filesystem::path& place) {
    model::ModelFiles files(place);
    for (const std::string& warning : files.warnings) core::warn(warning);
    if (adjust) adjust(files.config);
    LanguageModel model = without_values(files.config, files.tokenizer, files.origin());
    files.load(model.parameters());
    model.weights_changed();
    model.set_interpolation(files.interpolation);
    return model;
  };
  if (core::path_exists(path) && !core::is_folder(path)) return load_from(path);
  return core::read_atomically(path, model::kConfigFile, load_from);
}

}  // namespace alibi
