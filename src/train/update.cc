#include "train/update.h"

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

namespace alibi::training {

int64_t blocks_per_update(const TrainOptions& options) {
  return std::max<int64_t>(1, options.batch_tokens / options.length);
}

UpdateLoss compute_gradients(LanguageModel& model, BlockOrder& order, int64_t step, const TrainOptions& options) {
  const int64_t count = blocks_per_update(options);
  const int64_t at_once = std::max<int64_t>(1, options.micro_batch_tokens / options.length);
  UpdateLoss result;
  std::vector<int64_t> blocks;
  for (int64_t i = 0; i < count; ++i) {
    blocks.push_back(order.block_at(step * count + i));
    result.tokens += order.length_of(blocks.back());
  }
  // Of an encoder only what is masked counts; which, depends on the update alone, however it is cut.
  const std::optional<int32_t> mask = model.config().mask_token();
  const evaluation::Masking masking(
      options.mask_rate, core::Random(options.seed, core::mix(0x3a5c, static_cast<uint64_t>(step))), mask.value_or(0));
  int64_t targets = mask ? 0 : result.tokens;
  for (size_t i = 0; mask && i < blocks.size(); ++i) {
    const auto first = static_cast<int64_t>(i) * options.length;
    for (int64_t t = 0; t < order.length_of(blocks[i]); ++t) {
      targets += masking.asks(static_cast<uint64_t>(first + t)) ? 1 : 0;
    }
  }
  targets = std::max<int64_t>(1, targets);  // none: no gradients either
  model.zero_gradients();
  uint64_t part = 0;
  for (size_t begin = 0; begin < blocks.size(); ++part) {
    // As many blocks at once as fit; the stream's last, shorter block goes alone.
    size_t end = begin + 1;
    while (end < blocks.size() && static_cast<int64_t>(end - begin) < at_once &&
           order.length_of(blocks[end]) == order.length_of(blocks[begin])) {
      ++end;
    }
    const std::span<const int64_t> together = std::span(blocks).subspan(begin, end - begin);
    const Batch batch = mask ? order.masked_batch(together, masking, static_cast<int64_t>(begin) * options.length)
                             : order.batch(together);
    result.loss += model.accumulate_gradients(batch.ids, batch.targets, 1.0f / static_cast<float>(targets),
                                              {options.seed, static_cast<uint64_t>(step), part});
    begin = end;
  }
  result.loss /= static_cast<double>(targets);
  return result;
}

}  // namespace alibi::training
