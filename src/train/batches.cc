#include "train/batches.h"

#include <algorithm>
#include <numeric>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/parallel.h"
#include "core/random.h"

namespace alibi::training {

BlockOrder::BlockOrder(std::span<const int32_t> tokens, int64_t length, int32_t first_input, uint64_t seed,
                       std::span<const uint8_t> scored)
    : tokens_(tokens), scored_(scored), length_(length), blocks_(0), first_input_(first_input), seed_(seed) {
  check_usage(length >= 1, "[batches] the block length is {}, expected at least 1", length);
  check(!tokens.empty(), "[batches] the stream has no tokens, expected at least one");
  check(scored.empty() || scored.size() == tokens.size(),
        "[batches] the stream has {} tokens and {} marks of predicted tokens, expected equal numbers", tokens.size(),
        scored.size());
  blocks_ = core::ceil_div(static_cast<int64_t>(tokens.size()), length);
}

int64_t BlockOrder::block_at(int64_t n) {
  const int64_t epoch = n / blocks_;
  if (epoch != shuffled_epoch_) {
    order_.resize(static_cast<size_t>(blocks_));
    std::iota(order_.begin(), order_.end(), int64_t{0});
    const core::Random random(seed_, core::mix(0xb10c, static_cast<uint64_t>(epoch)));
    for (size_t i = order_.size(); i > 1; --i) std::swap(order_[i - 1], order_[random.below(i, i)]);
    shuffled_epoch_ = epoch;
  }
  return order_[static_cast<size_t>(n % blocks_)];
}

int64_t BlockOrder::length_of(int64_t block) const {
  return std::min(length_, static_cast<int64_t>(tokens_.size()) - block * length_);
}

int64_t BlockOrder::targets_of(int64_t block) const {
  if (scored_.empty()) return length_of(block);
  const auto first = scored_.begin() + block * length_;
  return length_of(block) - std::count(first, first + length_of(block), 0);
}

Batch BlockOrder::empty_batch(std::span<const int64_t> blocks) const {
  const int64_t length = length_of(blocks.front());
  for (const int64_t block : blocks) {
    check(length_of(block) == length,
          "[batches] a batch contains blocks of {} and of {} tokens, expected equal lengths", length, length_of(block));
  }
  const Shape shape{static_cast<int64_t>(blocks.size()), length};
  return {Tensor::empty(shape, DType::int32), Tensor::empty(shape, DType::int32)};
}

Batch BlockOrder::masked_batch(std::span<const int64_t> blocks, const evaluation::Masking& masking,
                               int64_t first_place) const {
  Batch result = empty_batch(blocks);
  int32_t* ids = result.ids.data<int32_t>();
  int32_t* targets = result.targets.data<int32_t>();
  for (const int64_t block : blocks) {
    for (int64_t t = 0; t < length_of(block); ++t) {
      const int32_t token = tokens_[static_cast<size_t>(block * length_ + t)];
      const auto [input, target] = masking(token, static_cast<uint64_t>(first_place + t));
      *ids++ = input;
      *targets++ = target;
    }
    first_place += length_;
  }
  return result;
}

Batch BlockOrder::batch(std::span<const int64_t> blocks) const {
  Batch result = empty_batch(blocks);
  const int64_t length = result.ids.size(1);
  int32_t* ids = result.ids.data<int32_t>();
  int32_t* targets = result.targets.data<int32_t>();
  for (const int64_t block : blocks) {
    for (int64_t t = block * length_; t < block * length_ + length; ++t) {
      *ids++ = t == 0 ? first_input_ : tokens_[static_cast<size_t>(t - 1)];
      const bool is_target = scored_.empty() || scored_[static_cast<size_t>(t)] != 0;
      *targets++ = is_target ? tokens_[static_cast<size_t>(t)] : -1;
    }
  }
  return result;
}

int64_t blocks_per_update(const TrainOptions& options) {
  return std::max<int64_t>(1, options.batch_tokens / options.train_length);
}

Update::Update(const LanguageModel& model, BlockOrder& order, int64_t step, const TrainOptions& options)
    : order_(order), options_(options), step_(step) {
  const int64_t count = blocks_per_update(options);
  const auto at_once = static_cast<size_t>(std::max<int64_t>(1, options.micro_batch_tokens / options.train_length));
  for (int64_t i = 0; i < count; ++i) {
    blocks_.push_back(order.block_at(step * count + i));
    tokens_ += order.length_of(blocks_.back());
    targets_ += order.targets_of(blocks_.back());
  }
  // An encoder predicts only masked tokens. They depend only on the update, not on its division into micro-batches.
  const std::optional<int32_t> mask = model.config().mask_token();
  if (mask) {
    masking_.emplace(options.mask_rate, core::Random(options.seed, core::mix(0x3a5c, static_cast<uint64_t>(step))),
                     *mask);
  }
  if (mask) targets_ = 0;
  for (size_t i = 0; mask && i < blocks_.size(); ++i) {
    const auto first = static_cast<int64_t>(i) * options.train_length;
    for (int64_t t = 0; t < order.length_of(blocks_[i]); ++t) {
      targets_ += masking_->asks(static_cast<uint64_t>(first + t)) ? 1 : 0;
    }
  }
  targets_ = std::max<int64_t>(1, targets_);  // without targets all gradients are zero
  for (int64_t shard = 0; shard < options.shards; ++shard) {
    const auto last = static_cast<size_t>(count * (shard + 1) / options.shards);
    for (auto begin = static_cast<size_t>(count * shard / options.shards); begin < last;) {
      // A micro-batch holds as many blocks as fit. The last block of the stream may be shorter, so it is a micro-batch
      // of its own.
      size_t end = begin + 1;
      while (end < last && end - begin < at_once && order.length_of(blocks_[end]) == order.length_of(blocks_[begin])) {
        ++end;
      }
      batches_.push_back({begin, end, batches_.size()});
      begin = end;
    }
    ends_.push_back(batches_.size());
  }
}

std::span<const MicroBatch> Update::of_shard(int shard) const {
  const auto index = static_cast<size_t>(shard);
  const size_t begin = shard == 0 ? 0 : ends_[index - 1];
  return std::span(batches_).subspan(begin, ends_[index] - begin);
}

double Update::accumulate(LanguageModel& model, const MicroBatch& at, const SequenceRanks* ranks) const {
  const std::span<const int64_t> together = std::span(blocks_).subspan(at.begin, at.end - at.begin);
  Batch batch = masking_
                    ? order_.masked_batch(together, *masking_, static_cast<int64_t>(at.begin) * options_.train_length)
                    : order_.batch(together);
  uint64_t part = at.part;
  if (ranks != nullptr) {
    const auto [first, rows] = sequence_shard(batch.ids.size(1), ranks->rank, ranks->count);
    batch.ids = batch.ids.slice(1, first, first + rows).clone();
    batch.targets = batch.targets.slice(1, first, first + rows).clone();
    // Every rank draws random numbers of its own.
    part = part * static_cast<uint64_t>(ranks->count) + static_cast<uint64_t>(ranks->rank);
  }
  return model.accumulate_gradients(batch.ids, batch.targets, 1.0f / static_cast<float>(targets_),
                                    {options_.seed, static_cast<uint64_t>(step_), part});
}

UpdateLoss compute_gradients(LanguageModel& model, BlockOrder& order, int64_t step, const TrainOptions& options) {
  TrainOptions one_shard = options;
  one_shard.shards = 1;
  const Update update(model, order, step, one_shard);
  UpdateLoss result{0, update.tokens()};
  model.zero_gradients();
  for (const MicroBatch& batch : update.of_shard(0)) result.loss += update.accumulate(model, batch);
  result.loss /= static_cast<double>(update.targets());
  return result;
}

}  // namespace alibi::training
