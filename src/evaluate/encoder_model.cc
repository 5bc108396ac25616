#include "alibi/encoder_model.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/check.h"
#include "evaluate/ragged.h"
#include "model/pass.h"

namespace alibi {

EncoderModel::EncoderModel(LanguageModel model) : model_(std::move(model)) {
  check_usage(!model_.config().transformer.attention.causal,
              "[encoder] the model is a decoder, expected an encoder; alibi::embed() makes vectors with a decoder");
}

EncoderModel EncoderModel::load(const std::filesystem::path& path) { return EncoderModel(LanguageModel::load(path)); }

EncoderInput EncoderModel::encode(std::string_view text, int64_t max_tokens) const {
  return encoder_input(model_, text, max_tokens);
}

EncoderInput EncoderModel::encode_pair(std::string_view first, std::string_view second, int64_t max_tokens) const {
  const Tokenizer& tokenizer = model_.tokenizer();
  Encoding pair = tokenizer.encode_pair(first, second);
  const int64_t length = std::ssize(pair.ids);
  if (max_tokens > 0 && length > max_tokens) {
    // The special tokens after the second text are those after it when it is empty.
    const Encoding around = tokenizer.encode_pair(first, "");
    const auto before = std::mismatch(around.ids.begin(), around.ids.end(), pair.ids.begin(), pair.ids.end()).first;
    const int64_t after = around.ids.end() - before;
    check_usage(max_tokens > std::ssize(around.ids),
                "[encoder] max_tokens is {}, but the first text and the special tokens have {}", max_tokens,
                around.ids.size());
    for (std::vector<int32_t>* values : {&pair.ids, &pair.type_ids}) {
      values->erase(values->begin() + (max_tokens - after), values->end() - after);
    }
  }
  return {.ids = std::move(pair.ids), .token_types = std::move(pair.type_ids)};
}

void EncoderModel::hidden(std::span<const EncoderInput> inputs,
                          const std::function<void(int64_t index, const Tensor& states)>& use,
                          int64_t batch_tokens) const {
  Tensor whole;  // of an input that comes in parts
  evaluation::each_hidden(model_, inputs, {.operation = "encoder", .batch_tokens = batch_tokens},
                          [&](const evaluation::States& states) {
                            const int64_t rows = states.rows.size(0), last = states.first + rows;
                            if (rows == states.total) return use(states.index, states.rows);
                            if (states.first == 0) whole = Tensor::empty({states.total, states.rows.size(1)});
                            whole.slice(0, states.first, last).copy_from(states.rows);
                            if (last == states.total) use(states.index, std::exchange(whole, Tensor()));
                          });
}

Tensor EncoderModel::hidden(const EncoderInput& input) const {
  Tensor result;
  hidden(std::span(&input, 1), [&](int64_t, const Tensor& states) { result = states.clone(); });
  return result;
}

Tensor EncoderModel::embed_inputs(std::span<const EncoderInput> inputs, const EmbedOptions& options) const {
  return alibi::embed_inputs(model_, inputs, options);
}

Tensor EncoderModel::embed(std::span<const std::string> texts, const EmbedOptions& options) const {
  return alibi::embed(model_, texts, options);
}

Tensor EncoderModel::logits(std::span<const EncoderInput> inputs, int64_t batch_tokens) const {
  check(labels() > 0,
        "[encoder] the model has no classifier, expected a reranker such as jina-reranker-v1; embed() makes vectors");
  Tensor first = Tensor::empty({std::ssize(inputs), int64_t{model_.config().transformer.d_model}});
  evaluation::each_hidden(model_, inputs, {.operation = "encoder", .batch_tokens = batch_tokens},
                          [&](const evaluation::States& states) {
                            if (states.first == 0)
                              first.slice(0, states.index, states.index + 1).copy_from(states.rows.slice(0, 0, 1));
                          });
  return inputs.empty() ? Tensor({0, labels()}) : model::classify(model_, first);
}

std::vector<double> EncoderModel::rerank(std::string_view query, std::span<const std::string> documents,
                                         int64_t max_tokens) const {
  check(labels() == 1, "[rerank] the model has {} outputs of a classifier, expected 1: a reranker", labels());
  std::vector<EncoderInput> inputs;
  for (const std::string& document : documents) inputs.push_back(encode_pair(query, document, max_tokens));
  std::vector<double> scores;
  for (const float logit : logits(inputs).to_floats())
    scores.push_back(1 / (1 + std::exp(-static_cast<double>(logit))));
  return scores;
}

}  // namespace alibi
