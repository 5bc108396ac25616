// A tokenizer from what the user asked for and the text it is for.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "alibi/tokenizer.h"
#include "alibi/training_data.h"
#include "text/documents.h"

namespace alibi::text {

/// "byte", "bpe", "unigram", "words".
const std::vector<std::string>& tokenizer_kinds();

/// Throws UsageError for a kind or a size that does not exist.
void validate(const TokenizerChoice& choice);

/// Learns the tokenizer from the documents, of bpe and unigram from at most 16 MiB of them, chosen by a fixed rule: the
/// same documents in the same order give the same tokenizer. Throws UsageError if the vocabulary is too small for the
/// text, Error if the text is too small.
std::shared_ptr<const Tokenizer> make_tokenizer(const TokenizerChoice& choice, const std::vector<Document>& documents,
                                                const TextProgress& progress = {});

}  // namespace alibi::text
