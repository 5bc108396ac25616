#include "alibi/loglikelihood.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/check.h"
#include "core/parallel.h"
#include "evaluate/checks.h"
#include "evaluate/ragged.h"
#include "model/context_state.h"
#include "nn/cross_entropy.h"

namespace alibi {
namespace {

EncoderInput inputs_of(const LanguageModel& model, const Continuation& text, size_t index) {
  const auto count = std::ssize(text.ids);
  check_usage(text.targets >= 1 && text.targets < count,
              "[loglikelihood] text {} has {} ids of which {} are targets, expected 1 to {}: the first id is no target",
              index, count, text.targets, count - 1);
  const int32_t last = text.ids.back();
  check(last >= 0 && last < model.config().vocab_size, "[loglikelihood] text {} has the id {}, expected 0 to {}", index,
        last, model.config().vocab_size - 1);
  return {.ids = {text.ids.begin(), text.ids.end() - 1}};
}

/// Adds what the states [rows, d_model] say of the targets after them.
void add(const LanguageModel& model, const Tensor& states, std::span<const int32_t> targets, Loglikelihood& result) {
  const int64_t vocab = model.config().vocab_size, most = nn::cross_entropy_chunk_rows(vocab);
  for (int64_t first = 0; first < std::ssize(targets); first += most) {
    const int64_t rows = std::min(most, std::ssize(targets) - first);
    const Tensor logits = model::logits(model, states.slice(0, first, first + rows));
    const float* const values = logits.data<float>();
    const std::span<const int32_t> asked = targets.subspan(static_cast<size_t>(first), static_cast<size_t>(rows));
    std::vector<double> norms(asked.size());
    nn::log_sum_exp(logits, norms);
    std::vector<uint8_t> greedy(asked.size());
    core::parallel_for(rows, [&](int64_t row) {
      const float* const begin = values + row * vocab;
      greedy[static_cast<size_t>(row)] =
          begin[asked[static_cast<size_t>(row)]] >= *std::max_element(begin, begin + vocab);
    });
    for (size_t row = 0; row < asked.size(); ++row) {
      const float logit = values[static_cast<int64_t>(row) * vocab + asked[row]];
      const double logprob = static_cast<double>(logit) - norms[row];
      evaluation::check_finite("loglikelihood", static_cast<float>(logprob), "log-probability of target",
                               first + static_cast<int64_t>(row));
      result.sum += logprob;
      result.squares += logprob * logprob;
      result.greedy = result.greedy && greedy[row] != 0;
    }
  }
}

}  // namespace

std::vector<Loglikelihood> loglikelihoods(const LanguageModel& model, std::span<const Continuation> texts,
                                          const LoglikelihoodOptions& options) {
  check(model.config().transformer.attention.causal,
        "[loglikelihood] the model is an encoder, expected a causal transformer, which predicts tokens from those "
        "before them");
  std::vector<EncoderInput> inputs;
  int64_t all = 0, done = 0;
  for (size_t i = 0; i < texts.size(); ++i) {
    inputs.push_back(inputs_of(model, texts[i], i));
    all += texts[i].targets;
  }
  std::vector<Loglikelihood> results(texts.size());
  evaluation::each_hidden(
      model, inputs, {.operation = "loglikelihood", .batch_tokens = options.batch_tokens},
      [&](const evaluation::States& part) {
        const auto index = static_cast<size_t>(part.index);
        const int64_t end = part.first + part.rows.size(0), first_target = part.total - texts[index].targets;
        const int64_t begin = std::max(part.first, first_target);
        if (begin >= end) return;
        add(model, part.rows.slice(0, begin - part.first, end - part.first),
            std::span(texts[index].ids).subspan(static_cast<size_t>(begin) + 1, static_cast<size_t>(end - begin)),
            results[index]);
        done += end - begin;
        if (options.on_progress) options.on_progress(done, all);
      });
  return results;
}

}  // namespace alibi
