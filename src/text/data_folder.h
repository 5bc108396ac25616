// A corpus that was tokenized once and for all: train.tokens, valid.tokens, the tokenizer's files and data.json, which
// says what belongs together. docs/text.md has the formats.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>

#include "text/corpus.h"
#include "text/make_tokenizer.h"
#include "text/training_data.h"

namespace alibi {

/// Whether there is something of a data folder there, whole or not.
bool is_data_folder(const std::filesystem::path& folder);

/// Makes the folder. Throws UsageError if a model lies there, whose tokenizer would be replaced. For a caller who wants
/// to know before the text is read; write_data_folder() does the same.
void prepare_data_folder(const std::filesystem::path& folder);

/// Encodes the corpus. Neither its text nor its tokens have to fit into memory; the files do not depend on the number
/// of threads. An older data folder in the same place stays whole until all of the new one is on the disk; then its
/// files are replaced one after the other, and who reads in between gets an error, never a mixture.
void write_data_folder(const std::filesystem::path& folder, const Corpus& corpus, const Tokenizer& tokenizer,
                       const TextProgress& progress = {});

/// Maps the tokens. Throws Error that names the file if one is missing or damaged, or if they do not belong together;
/// the ids themselves are not looked at.
TrainingData read_data_folder(const std::filesystem::path& folder);

/// The same, and reads all ids.
TrainingData check_data_folder(const std::filesystem::path& folder, const TextProgress& progress = {});

}  // namespace alibi
