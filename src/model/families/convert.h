// Writes models for other programs.
#pragma once

#include <filesystem>
#include <string_view>

#include "alibi/language_model.h"

namespace alibi::model {

/// Writes a folder that transformers loads without custom code, as a model of family_of_own(). Throws UsageError that
/// names the properties that a model of this family cannot have in transformers.
void write_for_transformers(const LanguageModel& model, const std::filesystem::path& folder);

/// Writes a GGUF file with matrices of type f32, f16, bf16 or q8_0, and the tokenizer if there is one. Throws
/// UsageError that names the properties that the format cannot express.
void write_gguf(const LanguageModel& model, const std::filesystem::path& file, std::string_view type);

}  // namespace alibi::model
