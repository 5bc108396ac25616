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

/// The opened files of a model. No memory is allocated for its parameters.
struct OwnFolder {
  OwnConfig config;
  formats::Safetensors weights;
  std::shared_ptr<const Tokenizer> tokenizer;  ///< null if the model was saved without one

  /// Throws Error if the configuration is invalid, a parameter is missing, has another shape or does not belong to the
  /// model, or if the weights were trained with another tokenizer.
  explicit OwnFolder(const std::filesystem::path& folder);
};

/// The tensors of each parameter in such a file, stacked by rows.
std::vector<std::vector<std::string>> own_tensors(const LanguageModelConfig& config);
/// Throws Error unless the file contains every parameter with its shape, and nothing else. Does not allocate the
/// parameters.
void check_own_weights(const formats::WeightSource& weights, const LanguageModelConfig& config);
/// Loads the parameters. Throws Error that names the tensor and the index of a number that is not finite.
void read_own_weights(const formats::WeightSource& weights, const LanguageModelConfig& config,
                      const std::vector<Parameter*>& parameters);
/// Writes all files of the model. `config_json` is own_config_json(), to which a family may have added keys.
void write_own_files(const std::filesystem::path& folder, const formats::OrderedJson& config_json,
                     const LanguageModelConfig& config, const std::vector<const Parameter*>& parameters,
                     const Tokenizer* tokenizer);
/// Names that these files may have.
std::set<std::string> own_file_names();

}  // namespace alibi::model
