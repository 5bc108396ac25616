#include "evaluate/ragged.h"

#include <algorithm>
#include <numeric>
#include <vector>

#include "core/check.h"
#include "core/memory.h"
#include "model/long_text.h"
#include "model/pass.h"

namespace alibi::evaluation {
namespace {

void check_input(const LanguageModelConfig& config, const EncoderInput& input, size_t index, const char* operation) {
  check(!input.ids.empty(), "[{}] input {} has no ids, expected at least one", operation, index);
  check_usage(input.token_types.empty() || input.token_types.size() == input.ids.size(),
              "[{}] input {} has {} token types for {} ids, expected equal numbers", operation, index,
              input.token_types.size(), input.ids.size());
  for (const int32_t id : input.ids) {
    check(id >= 0 && id < config.vocab_size, "[{}] input {} has the id {}, expected 0 to {}", operation, index, id,
          config.vocab_size - 1);
  }
  const int types = std::max(1, config.transformer.embedding.token_types);
  for (const int32_t type : input.token_types) {
    check_usage(type >= 0 && type < types, "[{}] token_type_ids of input {} have {}, expected 0 to {}", operation,
                index, type, types - 1);
  }
}

}  // namespace

void each_hidden(const LanguageModel& model, std::span<const EncoderInput> inputs, const RaggedOptions& options,
                 const std::function<void(const States& states)>& use) {
  for (size_t i = 0; i < inputs.size(); ++i) check_input(model.config(), inputs[i], i, options.operation);
  std::vector<size_t> order(inputs.size());
  std::iota(order.begin(), order.end(), size_t{0});
  const auto length = [&](size_t index) { return std::ssize(inputs[index].ids); };
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return length(a) < length(b); });
  int64_t done = 0, total = 0;
  for (const EncoderInput& input : inputs) total += std::ssize(input.ids);
  const auto progress = [&](int64_t tokens) {
    if (options.on_progress) options.on_progress(done + tokens, total);
  };

  const core::KeepMemory keep;
  model::Pass pass;
  const bool has_long = model::has_long_texts(model);
  for (size_t at = 0; at < order.size();) {
    const size_t begin = at;
    if (const int64_t tokens = length(order[at]); has_long && tokens > long_input * options.batch_tokens) {
      pass = model::Pass();  // frees its memory
      const EncoderInput& input = inputs[order[at]];
      const auto index = static_cast<int64_t>(order[at++]);
      model::each_state(
          model, {.ids = input.ids, .types = input.token_types, .chunk = options.batch_tokens},
          [&](int64_t first, const Tensor& states) {
            use({index, first, tokens, states});
          },
          [&](double share) { progress(static_cast<int64_t>(share * static_cast<double>(tokens))); });
      done += tokens;
      progress(0);
      continue;
    }
    std::vector<int32_t> ids, types;
    pass.sequences.cu_seqlens = {0};
    pass.sequences.together.position_scale = model::position_scale(model, length(order[begin]));
    do {
      const EncoderInput& input = inputs[order[at]];
      ids.insert(ids.end(), input.ids.begin(), input.ids.end());
      types.insert(types.end(), input.token_types.begin(), input.token_types.end());
      types.resize(ids.size());
      pass.sequences.cu_seqlens.push_back(static_cast<int32_t>(ids.size()));
      ++at;
      // With dynamic interpolation the slopes depend on the length of the text.
    } while (at < order.size() && std::ssize(ids) + length(order[at]) <= options.batch_tokens &&
             (!model.interpolation().dynamic || length(order[at]) == length(order[begin])));
    const Tensor token_types = Tensor::from(types, {std::ssize(types)});
    pass.sequences.token_types = &token_types;
    const Tensor states = model::hidden(model, Tensor::from(ids, {1, std::ssize(ids)}), pass);
    const int64_t width = states.size(2);
    for (size_t i = begin; i < at; ++i) {
      const int64_t first = pass.sequences.cu_seqlens[i - begin], last = pass.sequences.cu_seqlens[i - begin + 1];
      use({static_cast<int64_t>(order[i]), 0, last - first,
           states.slice(1, first, last).reshape({last - first, width})});
    }
    done += std::ssize(ids);
    progress(0);
  }
}

}  // namespace alibi::evaluation
