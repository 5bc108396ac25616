// Text from files in tokens: what a model is trained on, and what it is measured on.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "alibi/export.h"
#include "alibi/tokenizer.h"

namespace alibi {

/// The field of JSON Lines that holds the text, where nothing else is said.
inline constexpr const char* kTextField = "text";

/// What is being done, and how much of it, in [0, 1].
using TextProgress = std::function<void(std::string_view work, double fraction)>;

/// Ids, in memory or mapped from a file; copies share them.
struct TokenStream {
  std::span<const int32_t> tokens;
  std::shared_ptr<const void> owner;  ///< keeps them where they are
};

/// A document as a part of a stream.
struct TextPart {
  std::string name;
  int64_t bytes = 0;
  int64_t tokens = 0;
};

struct TrainingData {
  std::shared_ptr<const Tokenizer> tokenizer;
  TokenStream train, valid;
  int64_t train_bytes = 0;  ///< of the text behind the tokens
  int64_t valid_bytes = 0;
  int64_t train_files = 0;  ///< documents that it came in
  int64_t valid_files = 0;
  std::string split_rule;             ///< one sentence for reports: what is held out, and by which rule
  std::vector<TextPart> valid_parts;  ///< of `valid`, in order; empty: not known (a folder of tokens)
};

/// What a model is trained on. Either `texts` is one folder that `alibi tokenize` wrote, which has its split and its
/// tokenizer; or files, folders and "-" (standard input), read and split as docs/text.md says: the tokenizer is made
/// from what is trained on, and both parts are encoded into memory. No texts: the default corpus; no `valid`: a part of
/// the text is held out by a fixed rule.
/// Throws UsageError for what cannot be asked for together, Error for text that cannot be read or is too small.
ALIBI_API TrainingData training_data(const std::vector<std::string>& texts, const std::vector<std::string>& valid,
                                     const TokenizerChoice& choice = {}, const TextProgress& progress = {},
                                     const std::string& field = kTextField);

/// A warning for the user where a quarter or more of the held-out text is in the training text too, word for word, so
/// that its loss says little about new text; else empty. Passages of 128 tokens are compared, of a large held-out text
/// a sample of about 16,000; a held-out text of fewer than 135 tokens is not judged. Reads the training tokens once.
ALIBI_API std::string held_out_warning(const TrainingData& data);

/// A text that a model is measured on.
struct ScoredText {
  TokenStream stream;
  int64_t bytes = 0;
};

/// What training_data() holds out of the same texts, in a given tokenizer's tokens; of a data folder, its held-out
/// part.
ALIBI_API ScoredText held_out_text(const Tokenizer& tokenizer, const std::vector<std::string>& texts,
                                   const std::vector<std::string>& valid, const TextProgress& progress = {},
                                   const std::string& field = kTextField);

/// The texts in tokens, or the held-out part of a data folder. Throws Error if that was written with another tokenizer.
ALIBI_API ScoredText text_to_score(const Tokenizer& tokenizer, const std::vector<std::string>& texts,
                                   const TextProgress& progress = {}, const std::string& field = kTextField);

}  // namespace alibi
