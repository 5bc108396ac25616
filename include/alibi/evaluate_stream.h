// Evaluation in one pass: each token is predicted from all tokens before it, and computed once.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "alibi/context.h"
#include "alibi/evaluate.h"
#include "alibi/export.h"
#include "alibi/language_model.h"

namespace alibi {

struct EvaluateStreamOptions {
  ContextOptions context = {};  ///< data type and limits of the keys and values
  /// Parts of the stream to score, in rising order, without overlap; empty: the whole stream. Tokens before and between
  /// segments are read, tokens after the last one are not.
  std::vector<Segment> segments = {};
  /// Called from time to time with (tokens scored, tokens in total).
  std::function<void(int64_t, int64_t)> on_progress = {};
};

/// Targets [begin, end) of the stream; each was predicted from begin + 1 to end inputs.
struct StreamSpan {
  int64_t begin = 0, end = 0;
  double nll_sum = 0;  ///< nats, sum over the scored targets
  double seconds = 0;
};

struct ALIBI_API StreamEvaluation {
  int64_t tokens = 0;               ///< number of tokens scored: all tokens of the segments
  int64_t read = 0;                 ///< number of tokens computed: up to the last scored one
  std::vector<double> segment_nll;  ///< nats, sum of each segment
  double nll_sum = 0;               ///< sum of negative log-likelihoods, nats
  std::vector<StreamSpan> spans;    ///< the first 256 targets, then up to 512, 1024 ...
  int64_t cache_bytes = 0;          ///< peak bytes of keys and values
  EvictionCertificate certificate;
  double seconds = 0;

  double nll() const;         ///< mean per token, nats
  double perplexity() const;  ///< exp(nll())
  double bits_per_byte(int64_t bytes) const;
  double tokens_per_second() const;  ///< computed
};

/// Targets and inputs are those of evaluate(). The result equals that of evaluate() with one window over the whole
/// stream, up to rounding, but the memory holds only keys and values of the stream. With a limit in the context keys
/// are evicted, and the certificate bounds the effect. Throws Error if the positions of the model end before the stream
/// does, or if there are no tokens.
ALIBI_API StreamEvaluation evaluate_stream(const LanguageModel& model, std::span<const int32_t> tokens,
                                           const EvaluateStreamOptions& options = {});

}  // namespace alibi
