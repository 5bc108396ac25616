// A tokenized corpus: train.tokens, valid.tokens, the tokenizer's files and data.json, which describes the other files.
// docs/reference/text.md has the formats.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include "alibi/training_data.h"
#include "text/corpus.h"
#include "text/make_tokenizer.h"

namespace alibi::text {

/// Whether the folder contains a data folder, complete or not.
bool is_data_folder(const std::filesystem::path& folder);

/// The files of a data folder, which are replaced together.
std::set<std::string> data_file_names();

/// Creates the folder. Throws UsageError if it holds a model, whose tokenizer would be replaced, or tokens or a
/// tokenizer that may not be overwritten. Call it before the text is read; write_data_folder() replaces the files.
void prepare_data_folder(const std::filesystem::path& folder, bool overwrite);

/// Encodes the corpus. Neither its text nor its tokens have to fit into memory; the files do not depend on the number
/// of threads. An older data folder in the same place is replaced atomically when the new one is complete on disk
/// (core/atomic_update.h).
void write_data_folder(const std::filesystem::path& folder, const Corpus& corpus, const Tokenizer& tokenizer,
                       const TextProgress& progress = {});

enum class DataPart : uint8_t { both, valid };

/// Maps the tokens. Throws Error that names the file if one is missing or damaged, or if they do not belong together;
/// the ids are not checked.
TrainingData read_data_folder(const std::filesystem::path& folder);

/// Like read_data_folder(), and also checks the ids of both parts, or only of the held-out part. This takes a second
/// and a half per billion ids.
TrainingData check_data_folder(const std::filesystem::path& folder, const TextProgress& progress = {},
                               DataPart part = DataPart::both);

}  // namespace alibi::text
