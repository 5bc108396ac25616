// Our own model folders: config.json, model.safetensors, a tokenizer.
#pragma once

#include <filesystem>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "alibi/language_model.h"
#include "formats/safetensors.h"
#include "model/own_config.h"

namespace alibi::model {

/// The files of a model, opened. No memory is taken for its parameters.
struct OwnFolder {
  OwnConfig config;
  formats::Safetensors weights;
  std::shared_ptr<const Tokenizer> tokenizer;  ///< null: the model was saved without one

  /// Throws Error if something in them does not fit: the configuration; a parameter that is missing, has another shape
  /// or no place; the tokenizer, if the weights were trained with another one.
  explicit OwnFolder(const std::filesystem::path& folder);
};

/// The tensors of each parameter in such a file, one below the other.
std::vector<std::vector<std::string>> own_tensors(const LanguageModelConfig& config);
/// Throws Error unless the file has every parameter with its shape, and nothing else. Nothing is allocated for them.
void check_own_weights(const formats::WeightSource& weights, const LanguageModelConfig& config);
/// Fills the parameters. Throws Error that names the tensor and the place of a number that is not finite.
void read_own_weights(const formats::WeightSource& weights, const LanguageModelConfig& config,
                      const std::vector<Parameter*>& parameters);
/// Writes all files of the model. `config_json` is own_config_json() of the same, perhaps with keys of a family.
void write_own_files(const std::filesystem::path& folder, const formats::OrderedJson& config_json,
                     const LanguageModelConfig& config, const std::vector<const Parameter*>& parameters,
                     const Tokenizer* tokenizer);
/// What these may be called.
std::set<std::string> own_file_names();

}  // namespace alibi::model
