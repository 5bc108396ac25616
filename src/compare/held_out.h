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

HeldOutPlan plan_held_out(int64_t stream, int64_t wanted, int64_t train_length, int64_t longest);

/// Describes the bytes and the files of the blocks.
HeldOut describe(const TrainingData& data, const std::vector<Segment>& blocks);

/// Number of bytes of text that these parts of its tokens represent; the whole text, if there are no segments. If
/// decoding does not restore the text (`words`), the number is estimated in proportion. `all` is the size of the text.
int64_t bytes_of(const Tokenizer& tokenizer, std::span<const int32_t> tokens, int64_t all,
                 const std::vector<Segment>& segments);

/// Text of at most `count` tokens from the start of the first document, cut between characters.
std::string beginning_of(const Tokenizer& tokenizer, std::span<const int32_t> stream, int64_t count);

}  // namespace alibi::comparison
