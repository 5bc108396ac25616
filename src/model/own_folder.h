// The model on disk: a Hugging Face MPT folder (config.json, model.safetensors, a tokenizer). Keys that MPT does not
// have, for other position methods, adaptive vocabularies and the tokenizer, are under "alibi". A model that differs
// from an MPT has the same layout but its own architecture name, so that other programs refuse it.
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
/// Writes all files of the model. `tokenizer`, if not null, provides the ids at which generation begins and ends.
void write_own_files(const std::filesystem::path& folder, const LanguageModelConfig& config,
                     const std::vector<const Parameter*>& parameters, const Tokenizer* tokenizer);
/// Names that these files may have.
std::set<std::string> own_file_names();

}  // namespace alibi::model
