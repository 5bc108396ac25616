#include "train/update.h"

#include <algorithm>
#include <span>
#include <vector>

namespace alibi {

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
  model.zero_gradients();
  uint64_t part = 0;
  for (size_t begin = 0; begin < blocks.size(); ++part) {
    // As many blocks at once as fit; the stream's last, shorter block goes alone.
    size_t end = begin + 1;
    while (end < blocks.size() && static_cast<int64_t>(end - begin) < at_once &&
           order.length_of(blocks[end]) == order.length_of(blocks[begin])) {
      ++end;
    }
    const Batch batch = order.batch(std::span(blocks).subspan(begin, end - begin));
    result.loss += model.accumulate_gradients(batch.ids, batch.targets, 1.0f / static_cast<float>(result.tokens),
                                              {options.seed, static_cast<uint64_t>(step), part});
    begin = end;
  }
  result.loss /= static_cast<double>(result.tokens);
  return result;
}

}  // namespace alibi
