// Evaluation in one pass: each token is predicted from everything before it, and computed once.
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
  ContextOptions context = {};  ///< what keys and values are kept in, and how many
  /// What is scored; empty: the whole stream. What stands before and between is read, what is behind is not. Rising,
  /// without overlap.
  std::vector<Segment> segments = {};
  /// Called now and then with (tokens scored, tokens in all).
  std::function<void(int64_t, int64_t)> on_progress = {};
};

/// Targets [begin, end) of the stream; each was predicted from begin + 1 to end inputs.
struct StreamSpan {
  int64_t begin = 0, end = 0;
  double nll_sum = 0;  ///< nats, of those that were scored
  double seconds = 0;
};

struct ALIBI_API StreamEvaluation {
  int64_t tokens = 0;               ///< tokens scored: all of the segments
  int64_t read = 0;                 ///< tokens computed: up to the last of them
  std::vector<double> segment_nll;  ///< nats, of each segment
  double nll_sum = 0;               ///< sum of negative log-likelihoods, nats
  std::vector<StreamSpan> spans;    ///< the first 256 targets, then up to 512, 1024 ...
  int64_t cache_bytes = 0;          ///< what keys and values took at most
  EvictionCertificate certificate;
  double seconds = 0;

  double nll() const;         ///< mean per token, nats
  double perplexity() const;  ///< exp(nll())
  double bits_per_byte(int64_t bytes) const;
  double tokens_per_second() const;  ///< computed
};

/// Targets and inputs are those of evaluate(); what it gives is what evaluate() gives in one window over the whole
/// stream, to rounding, in memory that holds keys and values of the stream instead of the states of the window.
/// A limit of the context evicts keys, and the certificate bounds what that changed.
/// Throws Error if the positions of the model end before the stream, or there are no tokens.
ALIBI_API StreamEvaluation evaluate_stream(const LanguageModel& model, std::span<const int32_t> tokens,
                                           const EvaluateStreamOptions& options = {});

}  // namespace alibi
