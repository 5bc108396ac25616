// Evaluation as in the ALiBi paper: perplexity of a stream, with non-overlapping or sliding windows, and by position.
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
  int64_t length = 128;  ///< maximum number of tokens that the model sees at once
  int64_t stride = 0;    ///< new tokens per window; 0 or length: non-overlapping windows; 1: every token sees length -
                         ///< 1 tokens before it
  int64_t batch_tokens = 16384;  ///< maximum number of tokens of the windows that are computed together
  /// Parts of the stream to score, in rising order, without overlap; empty: the whole stream. A new window starts at
  /// each segment, so the targets do not depend on length and stride. A sliding window sees the text before its
  /// segment.
  std::vector<Segment> segments = {};
  double mask_rate = 0.15;  ///< encoders: fraction of the tokens that are scored
  uint64_t mask_seed = 0;   ///< encoders: seed of their choice
  /// Called from time to time with (tokens scored, tokens in total).
  std::function<void(int64_t, int64_t)> on_progress = {};
};

struct ALIBI_API Evaluation {
  int64_t length = 0;
  int64_t stride = 0;
  int64_t tokens = 0;                    ///< number of tokens scored: all tokens of the segments, each exactly once;
                                         ///< encoders: the masked tokens
  double nll_sum = 0;                    ///< sum of negative log-likelihoods, nats
  std::vector<double> segment_nll;       ///< the same for each segment
  std::vector<double> position_nll;      ///< [length] sums by position of the target in its window
  std::vector<int64_t> position_tokens;  ///< [length] number of targets at each position
  double seconds = 0;

  double nll() const;         ///< mean per token, nats
  double perplexity() const;  ///< exp(nll())
  double bits_per_byte(int64_t bytes) const;
  double tokens_per_second() const;
};

/// Targets are all tokens of the stream. The input of target t is token t - 1; the input of the first target is the end
/// of text. Windows end at multiples of `stride`; window b scores its last `stride` targets and sees up to length -
/// stride inputs before them (fewer at the start of the stream). docs/reference/evaluation.md has the definition and
/// its identities. The inputs of an encoder are the tokens themselves. mask_rate of them are masked as in training
/// (alibi/train.h) and scored, each from its whole window; they are the same at any length and stride. Throws
/// UsageError if length < 1, if stride is not in [0, length], or if the segments overlap or leave the stream; Error if
/// the model cannot run at that length; NotFiniteError if it overflows.
ALIBI_API Evaluation evaluate(const LanguageModel& model, std::span<const int32_t> tokens,
                              const EvaluateOptions& options);

}  // namespace alibi
