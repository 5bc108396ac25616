// Writes models for other programs.
#pragma once

#include <filesystem>
#include <string_view>

#include "alibi/language_model.h"

namespace alibi::model {

/// Writes a folder that transformers loads as an MPT without custom code. Throws UsageError that names the properties
/// that an MPT of transformers cannot have.
void write_for_transformers(const LanguageModel& model, const std::filesystem::path& folder);

/// Writes a GGUF file with matrices of type f32, f16, bf16 or q8_0, and the tokenizer if there is one. Throws
/// UsageError that names the properties that the format cannot express.
void write_gguf(const LanguageModel& model, const std::filesystem::path& file, std::string_view type);

}  // namespace alibi::model
