// A corpus that was tokenized once and for all: train.tokens, valid.tokens, the tokenizer's files and data.json, which
// says what belongs together. docs/text.md has the formats.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>

#include "alibi/training_data.h"
#include "text/corpus.h"
#include "text/make_tokenizer.h"

namespace alibi::text {

/// Whether there is something of a data folder there, whole or not.
bool is_data_folder(const std::filesystem::path& folder);

/// Makes the folder. Throws UsageError if a model lies there, whose tokenizer would be replaced, or if it holds tokens
/// or a tokenizer that are not to be overwritten. For a caller who wants to know before the text is read;
/// write_data_folder() replaces them.
void prepare_data_folder(const std::filesystem::path& folder, bool overwrite);

/// Encodes the corpus. Neither its text nor its tokens have to fit into memory; the files do not depend on the number
/// of threads. An older data folder in the same place is replaced as a whole, when all of the new one is on the disk
/// (core/together.h).
void write_data_folder(const std::filesystem::path& folder, const Corpus& corpus, const Tokenizer& tokenizer,
                       const TextProgress& progress = {});

enum class DataPart : uint8_t { both, valid };

/// Maps the tokens. Throws Error that names the file if one is missing or damaged, or if they do not belong together;
/// the ids themselves are not looked at.
TrainingData read_data_folder(const std::filesystem::path& folder);

/// The same, and reads all ids: of both parts, or of the held-out one alone. A second and a half for a billion.
TrainingData check_data_folder(const std::filesystem::path& folder, const TextProgress& progress = {},
                               DataPart part = DataPart::both);

}  // namespace alibi::text
