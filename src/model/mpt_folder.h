// The model on disk: a Hugging Face MPT folder (config.json, model.safetensors). Keys that MPT does not have, for the
// other position methods and for adaptive vocabularies, stand under "alibi".
#pragma once

#include <filesystem>
#include <vector>

#include "alibi/language_model.h"

namespace alibi {

/// Throws Error naming the file, the key, what was found and what was expected.
LanguageModelConfig read_mpt_config(const std::filesystem::path& folder);
/// Throws Error if the configuration is of a much larger model than the weights of the folder: nothing of its size
/// should be allocated for them.
void check_mpt_size(const std::filesystem::path& folder, const LanguageModelConfig& config);
/// Fills the parameters; every one must be there with its shape, and nothing else.
void read_mpt_weights(const std::filesystem::path& folder, const LanguageModelConfig& config,
                      const std::vector<Parameter*>& parameters);
/// `tokenizer`, if there is one, gives the ids at which generation begins and ends.
void write_mpt_folder(const std::filesystem::path& folder, const LanguageModelConfig& config,
                      const std::vector<const Parameter*>& parameters, const Tokenizer* tokenizer = nullptr);

}  // namespace alibi
