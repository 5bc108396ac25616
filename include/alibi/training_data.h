// Text from files as tokens, for training and evaluation.
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

/// Default name of the field of JSON Lines that holds the text.
inline constexpr const char* kTextField = "text";

/// Called with the current work and its finished fraction, in [0, 1].
using TextProgress = std::function<void(std::string_view work, double fraction)>;

/// Token ids, in memory or mapped from a file; copies share them.
struct TokenStream {
  std::span<const int32_t> tokens;
  std::shared_ptr<const void> owner;  ///< keeps the memory of `tokens` alive
};

/// A file in a folder that is no text.
struct SkippedFile {
  std::string file;    ///< its path
  std::string reason;  ///< "is empty"
};

/// The files that were found for a text, without hidden ones.
struct FilesRead {
  int64_t files = 0;                 ///< number of files, with the skipped ones
  std::vector<SkippedFile> skipped;  ///< by path
};

/// A sentence about the skipped files, or an empty string if there is none.
ALIBI_API std::string describe_skipped(const FilesRead& files);

/// A document within a stream.
struct TextPart {
  std::string name;
  int64_t bytes = 0;
  int64_t tokens = 0;
};

struct TrainingData {
  std::shared_ptr<const Tokenizer> tokenizer;
  TokenStream train, valid;
  int64_t train_bytes = 0;  ///< bytes of the text behind the tokens
  int64_t valid_bytes = 0;
  int64_t train_files = 0;  ///< number of documents
  int64_t valid_files = 0;
  std::string split_rule;             ///< a sentence for reports about what is held out, and by which rule
  std::vector<TextPart> valid_parts;  ///< documents of `valid` in order; empty if not known (a folder of tokens)
  FilesRead files;
};

/// Reads the text for a training. `texts` is either one folder of `alibi tokenize`, which has its own split and
/// tokenizer, or files, folders and "-" (standard input). The latter are read and split as described in
/// docs/reference/text.md; the tokenizer is learned from the training text, and both parts are encoded into memory.
/// Without texts the default corpus is used. Without `valid` a part of the text is held out by a fixed rule. Throws
/// UsageError for options that exclude each other, and Error for text that cannot be read or is too small.
ALIBI_API TrainingData training_data(const std::vector<std::string>& texts, const std::vector<std::string>& valid,
                                     const TokenizerChoice& choice = {}, const TextProgress& progress = {},
                                     const std::string& field = kTextField);

/// Returns a warning if a quarter or more of the held-out text is also in the training text, word for word, so that its
/// loss says little about new text; otherwise an empty string. Compares passages of 128 tokens, and for a large
/// held-out text a sample of about 16,000. A held-out text of fewer than 135 tokens is not checked. Reads the training
/// tokens once.
ALIBI_API std::string held_out_warning(const TrainingData& data);

/// A text to evaluate a model on.
struct ScoredText {
  TokenStream stream;
  int64_t bytes = 0;
  FilesRead files;
};

/// The text that training_data() holds out of the same texts, as tokens of the given tokenizer. For a data folder, its
/// held-out part.
ALIBI_API ScoredText held_out_text(const Tokenizer& tokenizer, const std::vector<std::string>& texts,
                                   const std::vector<std::string>& valid, const TextProgress& progress = {},
                                   const std::string& field = kTextField);

/// The texts as tokens, or the held-out part of a data folder. Throws Error if the folder was written with another
/// tokenizer.
ALIBI_API ScoredText text_to_score(const Tokenizer& tokenizer, const std::vector<std::string>& texts,
                                   const TextProgress& progress = {}, const std::string& field = kTextField);

}  // namespace alibi
