// The text of `alibi eval`, and whether the model knows it.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "alibi/tokenizer.h"
#include "alibi/training_data.h"
#include "text/documents.h"

namespace alibi::cli {

struct EvalText {
  std::string model;
  std::vector<std::string> texts;  ///< of the command line
  bool held_out = false;           ///< in their place, the held-out text of the model's training
  std::string field = kTextField;
};

/// Throws UsageError unless there are either texts or --held-out.
void check_texts(const EvalText& options);

/// The text as tokens. Throws Error if the held-out text has changed since the training.
ScoredText text_of(const EvalText& options, const Tokenizer& tokenizer, const TextProgress& progress);

/// The text as documents. Throws UsageError for a folder of tokens. `scoring` is why the text itself is needed. `files`
/// receives what was read.
std::vector<text::Document> documents_of(const EvalText& options, const std::string& scoring, FilesRead& files);
/// Their tokens, as text_of() gives them.
ScoredText encoded(const EvalText& options, const Tokenizer& tokenizer, const std::vector<text::Document>& documents);

/// The share of the text that is in the model's training text, if known. Warns of a large share. A damaged file must
/// not prevent the evaluation.
std::optional<double> part_trained_on(const EvalText& options, const ScoredText& text);

}  // namespace alibi::cli
