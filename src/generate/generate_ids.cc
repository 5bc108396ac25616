#include <algorithm>
#include <vector>

#include "alibi/context.h"
#include "alibi/language_model.h"
#include "core/check.h"
#include "generate/sampling.h"

namespace alibi {

std::vector<int32_t> LanguageModel::generate_ids(std::span<const int32_t> prompt,
                                                 const GenerateOptions& options) const {
  generation::check_options(options);
  check_usage(!prompt.empty(), "[generate] the prompt has no tokens, expected at least one");
  const core::Random random(options.seed, core::mix(0x9e4e, 0));
  std::vector<bool> seen(static_cast<size_t>(options.repetition_penalty == 1 ? 0 : config().vocab_size));
  const auto see = [&](int32_t id) {
    if (!seen.empty()) seen[static_cast<size_t>(id)] = true;
  };
  Context context(*this);
  std::vector<int32_t> ids;
  Tensor logits = next_logits(Tensor::from(prompt, {1, std::ssize(prompt)}), context);  // throws if an id is unknown
  std::for_each(prompt.begin(), prompt.end(), see);
  while (std::ssize(ids) < options.max_tokens) {
    std::vector<float> values = logits.to_floats();
    generation::check_logits(values);
    if (!seen.empty()) values = generation::penalized(values, seen, options.repetition_penalty);
    ids.push_back(generation::sample_token(values, options, random, static_cast<uint64_t>(ids.size()), -1));
    see(ids.back());
    if (options.on_token && !options.on_token(ids.back())) break;
    if (std::ssize(ids) < options.max_tokens)
      logits = next_logits(Tensor::from(std::span(ids).last(1), {1, 1}), context);
  }
  return ids;
}

}  // namespace alibi
