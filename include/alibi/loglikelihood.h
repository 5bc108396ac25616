// Log-likelihoods of the ends of texts, and the perplexities that lm-evaluation-harness and llama-perplexity compute.
// docs/reference/evaluation.md compares these with evaluate().
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "alibi/export.h"
#include "alibi/language_model.h"

namespace alibi {

/// Ids of which the last `targets` are scored, each given all ids before it.
struct Continuation {
  std::vector<int32_t> ids;
  int64_t targets = 1;  ///< 1 to ids.size() - 1
};

struct Loglikelihood {
  double sum = 0;      ///< natural logarithm of the probability of the targets
  double squares = 0;  ///< sum of the squares of the targets' logarithms
  bool greedy = true;  ///< no token of the vocabulary has a larger logit than a target at the place of the target
};

struct LoglikelihoodOptions {
  int64_t batch_tokens = 16384;  ///< maximum number of tokens that are computed together, unless one text has more
  /// Called from time to time with (targets scored, targets in total).
  std::function<void(int64_t, int64_t)> on_progress = {};
};

/// Texts of any lengths are computed together without padding, and the other texts of the call change a result by
/// rounding only. Throws Error that names the text if its ids or its number of targets are out of range, or if the
/// model is an encoder; NotFiniteError if it overflows.
ALIBI_API std::vector<Loglikelihood> loglikelihoods(const LanguageModel& model, std::span<const Continuation> texts,
                                                    const LoglikelihoodOptions& options = {});

/// The windows of lm-evaluation-harness's loglikelihood_rolling (get_rolling_token_windows with a context of one token,
/// then make_disjoint_window): each token is a target once. The first window begins with `prefix`. Every later one has
/// `length` inputs, so the last one repeats tokens unless it is full.
ALIBI_API std::vector<Continuation> rolling_windows(std::span<const int32_t> tokens, int32_t prefix, int64_t length);

struct RollingOptions {
  int64_t length = 2048;               ///< maximum number of inputs of a window: max_length of the harness
  std::optional<int32_t> prefix = {};  ///< before the first token; absent: begin_of_text(), else end_of_text()
  LoglikelihoodOptions computation = {};
};

struct ALIBI_API RollingEvaluation {
  int64_t length = 0;
  int64_t documents = 0;
  int64_t tokens = 0;  ///< targets: all tokens of the documents, without special tokens around them
  int64_t words = 0;   ///< of each document, the number of runs of white space + 1, as the harness counts
  int64_t bytes = 0;
  double nll_sum = 0;
  double seconds = 0;

  double nll() const;         ///< mean per token, nats
  double perplexity() const;  ///< per token, which the harness does not report
  double word_perplexity() const;
  double byte_perplexity() const;
  double bits_per_byte() const;
  double tokens_per_second() const;
};

/// Each document is scored alone. Special tokens in a document are recognized, as transformers does. Throws UsageError
/// for a length below 1, and what loglikelihoods() throws.
ALIBI_API RollingEvaluation evaluate_rolling(const LanguageModel& model, std::span<const std::string> documents,
                                             const RollingOptions& options = {});

struct ChunkOptions {
  int64_t length = 512;  ///< n_ctx of llama-perplexity, at least 3
  LoglikelihoodOptions computation = {};
};

struct ALIBI_API ChunkEvaluation {
  int64_t length = 0;
  int64_t chunks = 0;
  int64_t tokens = 0;  ///< targets: length - length / 2 - 1 of each chunk
  double nll_sum = 0;
  double squares = 0;  ///< sum of the squares of the targets' losses
  double seconds = 0;

  double nll() const;
  double perplexity() const;
  double perplexity_error() const;  ///< what llama-perplexity prints after +/-
  double tokens_per_second() const;
};

/// llama-perplexity's scoring: the text, without one line feed at its end, is cut into chunks of `length` tokens. The
/// first token of each chunk is replaced by the token that the tokenizer puts before a prompt, if there is one. Targets
/// are those after position length / 2. A rest shorter than a chunk is not scored. Throws UsageError for a length below
/// 3, Error if the text is shorter than one chunk, and what loglikelihoods() throws.
ALIBI_API ChunkEvaluation evaluate_chunks(const LanguageModel& model, const std::string& text,
                                          const ChunkOptions& options = {});

}  // namespace alibi
