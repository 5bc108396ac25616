// The scored parts of the held-out text, their bytes and their files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "alibi/evaluate.h"
#include "alibi/results.h"
#include "alibi/training_data.h"

namespace alibi::comparison {

/// Returns 1, 1.25, 1.5, 2, 3, 4, 6, 8 and 16 times the training length, rounded to whole tokens.
std::vector<int64_t> lengths_to_measure(int64_t train_length);

/// Number of held-out tokens to score. It depends on the size of the model and is at least sixteen times the longest
/// length, because the intervals need that many blocks.
int64_t tokens_to_score(const std::string& preset, int64_t longest);

/// What a comparison scores. Each block is divided into windows of every length, so the targets are the same at all
/// lengths. No block is longer than the longest length.
struct HeldOutPlan {
  std::vector<Segment> blocks;
  std::vector<Segment> groups;    ///< groups of 16 targets that are scored with more and more context
  std::vector<int64_t> contexts;  ///< the numbers of context tokens, rising
  int64_t tokens = 0;             ///< in the blocks
};

/// Returns blocks of `longest` tokens (the last one may be shorter) with `wanted` tokens in total, spread evenly over
/// the stream and so over all files. If the stream has fewer tokens, the blocks cover all of it.
std::vector<Segment> spread_blocks(int64_t stream, int64_t wanted, int64_t longest);

HeldOutPlan plan_held_out(int64_t stream, int64_t wanted, int64_t train_length, int64_t longest);

/// Describes the bytes and the files of the blocks.
HeldOut describe(const TrainingData& data, const std::vector<Segment>& blocks);

/// Number of bytes of held-out text that the tokens represent. If decoding does not restore the text (`words`), the
/// number is estimated in proportion.
int64_t bytes_of(const TrainingData& data, const std::vector<Segment>& segments);
/// bytes_of() for the first `tokens` tokens.
int64_t bytes_of_prefix(const TrainingData& data, size_t tokens);

/// Text of at most `count` tokens from the start of the first document, cut between characters.
std::string beginning_of(const Tokenizer& tokenizer, std::span<const int32_t> stream, int64_t count);

}  // namespace alibi::comparison
