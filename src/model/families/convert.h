// Writes models for other programs.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "alibi/language_model.h"

namespace alibi::model {

/// Writes a folder that transformers loads: as an MPT without code of others, or as a Forgetting Transformer with
/// flash-linear-attention. Throws UsageError that names what each of them cannot express.
void write_for_transformers(const LanguageModel& model, const std::filesystem::path& folder);

/// Writes a folder in alibi's own layout. Throws UsageError if the model interpolates positions, which the layout does
/// not say.
void write_own(const LanguageModel& model, const std::filesystem::path& folder);

/// A tensor that does not have the requested type.
struct OtherType {
  std::string tensor, type;
};

/// Writes a GGUF file with matrices of type f32, f16, bf16, q8_0, q4_0 or q4_k, and the tokenizer if there is one.
/// Matrices whose rows do not fill blocks become f16. Returns these. Throws UsageError that names the properties that
/// the format cannot express, and Error that names the tensor if a number does not fit into the type.
std::vector<OtherType> write_gguf(const LanguageModel& model, const std::filesystem::path& file, std::string_view type);

/// The same for a GGUF file of any family: the metadata, with the tokenizer, are copied, and tensors that have the type
/// already keep their bytes.
std::vector<OtherType> rewrite_gguf(const std::filesystem::path& from, const std::filesystem::path& file,
                                    std::string_view type);

}  // namespace alibi::model
