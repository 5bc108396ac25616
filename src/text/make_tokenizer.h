// Creates the tokenizer that the user selected, for a given text.
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

/// Throws UsageError if the kind or the size is not supported.
void validate(const TokenizerChoice& choice);

/// Learns the tokenizer from the documents. bpe and unigram use at most 16 MiB of them, chosen by a fixed rule. The
/// same documents in the same order give the same tokenizer. Throws UsageError if the vocabulary is too small for the
/// text, and Error if the text is too small.
std::shared_ptr<const Tokenizer> make_tokenizer(const TokenizerChoice& choice, const std::vector<Document>& documents,
                                                const TextProgress& progress = {});

}  // namespace alibi::text
