// Evaluation as the paper does it: perplexity of a stream, non-overlapping or with a sliding window, by position.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "alibi/export.h"
#include "alibi/language_model.h"

namespace alibi {

/// Targets [begin, end) of a stream.
struct Segment {
  int64_t begin = 0, end = 0;
  int64_t size() const { return end - begin; }
  bool operator==(const Segment&) const = default;
};

struct EvaluateOptions {
  int64_t length = 128;  ///< most tokens the model sees at once
  int64_t stride = 0;    ///< new tokens per window; 0 or length: non-overlapping; 1: every token sees length - 1 more
  int64_t batch_tokens = 16384;  ///< windows are computed together up to this many tokens
  /// What is scored; empty: the whole stream. Windows begin anew at each segment, so the targets do not depend on
  /// length and stride; a sliding window sees the text before its segment. Rising, without overlap.
  std::vector<Segment> segments = {};
  double mask_rate = 0.15;  ///< encoders: part of the tokens that are scored
  uint64_t mask_seed = 0;   ///< encoders: which
  /// Called now and then with (tokens scored, tokens in all).
  std::function<void(int64_t, int64_t)> on_progress = {};
};

struct ALIBI_API Evaluation {
  int64_t length = 0;
  int64_t stride = 0;
  int64_t tokens = 0;                ///< tokens scored: all of the segments, each exactly once; encoders: the masked
  double nll_sum = 0;                ///< sum of negative log-likelihoods, nats
  std::vector<double> segment_nll;   ///< the same for each segment
  std::vector<double> position_nll;  ///< [length] sums by position of the target in its window
  std::vector<int64_t> position_tokens;  ///< [length] how many
  double seconds = 0;

  double nll() const;         ///< mean per token, nats
  double perplexity() const;  ///< exp(nll())
  double bits_per_byte(int64_t bytes) const;
  double tokens_per_second() const;
};

/// Targets are all tokens of the stream; the input of target t is token t - 1, the first one's is the end of text.
/// Windows end at multiples of `stride`; window b scores its last `stride` targets and sees up to length - stride
/// inputs before them (fewer at the start of the stream). docs/evaluation.md has the definition and its identities.
/// Of an encoder the inputs are the tokens themselves, mask_rate of them treated as in training (alibi/train.h), and
/// these are scored: the same ones at any length and stride, each from all of its window.
/// Throws UsageError if length < 1, stride is not in [0, length] or the segments overlap or leave the stream, Error if
/// the model cannot run at that length, NotFiniteError where it overflows.
ALIBI_API Evaluation evaluate(const LanguageModel& model, std::span<const int32_t> tokens,
                              const EvaluateOptions& options);

}  // namespace alibi
