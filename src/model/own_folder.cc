#include "model/own_folder.h"

#include <optional>
#include <set>
#include <utility>

#include "core/check.h"
#include "core/files.h"
#include "formats/json.h"
#include "model/parameters.h"
#include "model/position.h"
#include "nn/weights.h"
#include "text/tokenizer_files.h"

namespace alibi::model {
namespace {

constexpr const char* kWeightsFile = "model.safetensors";
/// Of the shards of a model that is replaced: it would count before kWeightsFile.
constexpr const char* kIndexFile = "model.safetensors.index.json";

/// A tensor of a file: all or some rows of a parameter.
struct StoredTensor {
  std::string name;
  size_t parameter;  ///< its index in LanguageModel::parameters()
  Shape shape;
  std::optional<std::pair<int64_t, int64_t>> rows;

  Tensor of(const Tensor& value) const { return rows ? value.slice(0, rows->first, rows->second) : value; }
};

/// The tensors that the files of such a model contain.
std::vector<StoredTensor> parts_of(const LanguageModelConfig& config) {
  const std::vector<ParameterSpec> specs = parameter_specs(config);
  std::vector<StoredTensor> parts;
  for (size_t i = 0; i < specs.size(); ++i) {
    const ParameterSpec& spec = specs[i];
    if (spec.parts.empty()) parts.push_back({"transformer." + spec.name, i, spec.shape, {}});
    Shape shape = spec.shape;
    if (!spec.parts.empty()) shape[0] /= static_cast<int64_t>(spec.parts.size());
    for (int64_t begin = 0; const std::string& name : spec.parts) {
      parts.push_back({"transformer." + name, i, shape, std::pair(begin, begin + shape[0])});
      begin += shape[0];
    }
  }
  return parts;
}

/// Throws Error if the tokenizer in the folder is not the one that the weights were trained with, or does not fit the
/// model.
void check_own_tokenizer(const std::filesystem::path& folder, const OwnConfig& config, const Tokenizer& tokenizer) {
  const std::string file = text::tokenizer_file(folder).string(), path = (folder / kConfigFile).string();
  check(config.tokenizer_fingerprint.empty() || config.tokenizer_fingerprint == text::fingerprint_text(tokenizer),
        "[model] {}: the weights were trained with a tokenizer of the kind '{}' and the fingerprint {}; {} holds "
        "another one ({}, {}). Put back the file that belongs to them; if it gives the same ids, take alibi.tokenizer "
        "out of {}",
        path, config.tokenizer_kind, config.tokenizer_fingerprint, file, tokenizer.kind(),
        text::fingerprint_text(tokenizer), kConfigFile);
  const int tokens = config.model.mask_token().value_or(config.model.vocab_size);
  check(tokenizer.vocab_size() <= tokens, "[model] {}: vocab_size is {}{}, but {} has {} tokens", path,
        config.model.vocab_size, config.model.mask_token() ? ", with the mask" : "", file, tokenizer.vocab_size());
}

}  // namespace

std::vector<std::vector<std::string>> own_tensors(const LanguageModelConfig& config) {
  std::vector<std::vector<std::string>> tensors;
  for (const StoredTensor& part : parts_of(config)) {
    if (part.parameter == tensors.size()) tensors.emplace_back();
    tensors.back().push_back(part.name);
  }
  return tensors;
}

void check_own_weights(const formats::WeightSource& weights, const LanguageModelConfig& config) {
  // Checked before anything is allocated for each layer.
  const size_t tensors = weights.tensors().size();
  check(static_cast<size_t>(config.transformer.layers) <= tensors, "[model] {}: {} tensors, but {} says n_layers {}",
        fmt::join(weights.sources(), ", "), tensors, kConfigFile, config.transformer.layers);
  std::set<std::string> used;
  for (const StoredTensor& part : parts_of(config)) {
    weights.check_loadable(part.name, part.shape, DType::float32);
    used.insert(part.name);
  }
  // transformers may have written the head of a tied model as well.
  constexpr const char* head = "lm_head.weight";
  const char* const own = config.transformer.head.tied ? "transformer.wte.weight" : "transformer.lm_head.weight";
  check(!weights.contains(head) || (weights.contains(own) && weights.are_equal(head, own)),
        "[model] {}: {} differs from {}, expected the same numbers", fmt::join(weights.sources(), ", "), head, own);
  for (const formats::TensorInfo& tensor : weights.tensors()) {
    check(used.contains(tensor.name) || tensor.name == head,
          "[model] {}: the tensor {} has no place in the model that {} describes", weights.source_of(tensor.name),
          tensor.name, kConfigFile);
  }
}

OwnFolder::OwnFolder(const std::filesystem::path& folder)
    : config(read_own_config(folder)),  // read first, so that a folder without a model gets the right message
      weights(folder) {
  check_own_weights(weights, config.model);
  // A model of another program that was saved here may have no fingerprint.
  if (config.tokenizer_fingerprint.empty() && !core::path_exists(text::tokenizer_file(folder))) return;
  tokenizer = Tokenizer::load(folder);
  check_own_tokenizer(folder, config, *tokenizer);
}

void read_own_weights(const formats::WeightSource& weights, const LanguageModelConfig& config,
                      const std::vector<Parameter*>& parameters) {
  for (const StoredTensor& part : parts_of(config)) {
    Tensor target = part.of(parameters[part.parameter]->value);
    weights.load_finite_into(part.name, target);
  }
}

void write_own_files(const std::filesystem::path& folder, const formats::OrderedJson& config_json,
                     const LanguageModelConfig& config, const std::vector<const Parameter*>& parameters,
                     const Tokenizer* tokenizer) {
  std::vector<formats::NamedTensor> tensors;
  for (const StoredTensor& part : parts_of(config)) {
    const Tensor stored = part.of(parameters[part.parameter]->value);
    tensors.push_back({part.name, numbers_in(stored.dtype()) > 1 ? nn::widened(stored) : stored});
  }
  formats::write_safetensors(folder / kWeightsFile, tensors);

  formats::write_json(folder / kConfigFile, config_json);
  if (tokenizer != nullptr) tokenizer->save(folder);
}

std::set<std::string> own_file_names() {
  std::set<std::string> names = text::tokenizer_file_names();
  names.insert({kConfigFile, kWeightsFile, kIndexFile});
  return names;
}

}  // namespace alibi::model
