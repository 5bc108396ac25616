// Parts of the held-out text: which ones are scored, their bytes, and their files.
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

/// 1, 1.25, 1.5, 2, 3, 4, 6, 8, 16 times the training length, rounded to whole tokens.
std::vector<int64_t> lengths_to_measure(int64_t train_length);

/// Number of held-out tokens to score. It depends on the size of the model and is at least sixteen blocks of the
/// longest length, which intervals need.
int64_t tokens_to_score(const std::string& preset, int64_t longest);

/// What a comparison scores. Each block is cut into windows of every length, so the targets are the same ones at all of
/// them; no block is longer than the longest length.
struct HeldOutPlan {
  std::vector<Segment> blocks;
  std::vector<Segment> groups;    ///< of 16 targets, which are scored with more and more text before them
  std::vector<int64_t> contexts;  ///< how much, rising
  int64_t tokens = 0;             ///< of the blocks
};

/// Blocks of `longest` tokens (the last one may be shorter), `wanted` tokens together, spread evenly over the stream
/// and so over all files; the whole stream if it has no more.
std::vector<Segment> spread_blocks(int64_t stream, int64_t wanted, int64_t longest);

HeldOutPlan plan_held_out(int64_t stream, int64_t wanted, int64_t train_length, int64_t longest);

/// The bytes and the files of the blocks.
HeldOut describe(const TrainingData& data, const std::vector<Segment>& blocks);

/// Bytes of held-out text that the tokens stand for. Where decoding does not restore the text (`words`), they are
/// estimated in proportion.
int64_t bytes_of(const TrainingData& data, const std::vector<Segment>& segments);
/// The same of the first tokens.
int64_t bytes_of_prefix(const TrainingData& data, size_t tokens);

/// Text of at most `count` tokens of the first document, in whole characters.
std::string beginning_of(const Tokenizer& tokenizer, std::span<const int32_t> stream, int64_t count);

}  // namespace alibi::comparison
