#include "alibi/embed.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/check.h"
#include "core/names.h"
#include "evaluate/checks.h"
#include "evaluate/ragged.h"

namespace alibi {
namespace {

void check_pooling(const LanguageModel& model, Pooling pooling) {
  check_usage(
      !model.config().transformer.attention.causal || pooling != Pooling::first,
      "[embed] pooling is first, but the first token of a decoder sees nothing of the text; expected mean or last");
}

/// The vector of some tokens of a text, whose states come in parts.
class Pooled {
 public:
  /// `result` [d_model] is written when the states of all tokens are there.
  Pooled(TokenSpan rows, const EmbedOptions& options, int64_t index, float* result)
      : rows_(rows), is_normalized_(options.normalize), index_(index), result_(result) {
    if (options.pooling == Pooling::first) rows_.end = rows_.begin + 1;
    if (options.pooling == Pooling::last) rows_.begin = rows_.end - 1;
  }

  void add(const evaluation::States& states) {
    const int64_t width = states.rows.size(1), last = states.first + states.rows.size(0);
    const int64_t begin = std::max(rows_.begin, states.first), end = std::min(rows_.end, last);
    if (begin >= end) return;
    sums_.resize(static_cast<size_t>(width));
    for (int64_t t = begin; t < end; ++t) {
      const float* const state = states.rows.data<float>() + (t - states.first) * width;
      for (int64_t c = 0; c < width; ++c) sums_[static_cast<size_t>(c)] += static_cast<double>(state[c]);
    }
    if (end == rows_.end) finish();
  }

 private:
  void finish() {
    for (double& sum : sums_) {
      sum /= static_cast<double>(rows_.end - rows_.begin);
      evaluation::check_finite("embed", static_cast<float>(sum), "vector of text", index_);
    }
    const double norm = std::sqrt(std::inner_product(sums_.begin(), sums_.end(), sums_.begin(), 0.0));
    if (is_normalized_ && norm > 0) {
      for (double& x : sums_) x /= norm;
    }
    std::copy(sums_.begin(), sums_.end(), result_);
    sums_ = {};  // an input may have many spans
  }

  TokenSpan rows_;
  bool is_normalized_;
  int64_t index_;
  float* result_;
  std::vector<double> sums_;
};

/// Whether a text is read after an end-of-text token, as this library trains.
bool is_own(const Tokenizer& tokenizer) {
  constexpr std::string_view own[] = {"byte", "bpe", "unigram", "words"};
  return std::find(std::begin(own), std::end(own), tokenizer.kind()) != std::end(own);
}

}  // namespace

const char* name_of(Pooling value) { return enum_name(value); }
Pooling pooling_from(std::string_view name) {
  return name == "cls" ? Pooling::first : core::value_called<Pooling>(name, "pooling");
}

ChunkedInput chunked_input(const LanguageModel& model, std::span<const std::string> parts) {
  const Tokenizer& tokenizer = model.tokenizer();
  ChunkedInput result{encoder_input(model, ""), {}};
  const std::vector<int32_t> around = result.input.ids;
  // Special tokens before the text are those that also begin an encoded text that is not empty.
  const std::vector<int32_t> sample = tokenizer.encode_prompt("a");
  const auto before = std::mismatch(around.begin(), around.end(), sample.begin(), sample.end()).first;
  std::vector<int32_t>& ids = result.input.ids;
  ids.assign(around.begin(), before);
  for (const std::string& part : parts) {
    const auto begin = std::ssize(ids);
    const std::vector<int32_t> of_part =
        is_own(tokenizer) ? tokenizer.encode(part) : tokenizer.encode(part, {.add_special_tokens = false});
    ids.insert(ids.end(), of_part.begin(), of_part.end());
    result.spans.push_back({begin, std::ssize(ids)});
  }
  ids.insert(ids.end(), before, around.end());
  return result;
}

EncoderInput encoder_input(const LanguageModel& model, std::string_view text, int64_t max_tokens) {
  const Tokenizer& tokenizer = model.tokenizer();
  EncoderInput input{.ids = tokenizer.encode_prompt(text)};
  if (max_tokens > 0 && std::ssize(input.ids) > max_tokens) {
    // The ids around an empty text are the special tokens, those before the text first.
    const std::vector<int32_t> around = tokenizer.encode_prompt("");
    const auto before = std::mismatch(around.begin(), around.end(), input.ids.begin(), input.ids.end()).first;
    const int64_t after = around.end() - before;
    check_usage(max_tokens > std::ssize(around), "[embed] max_tokens is {}, expected more than {}, the special tokens",
                max_tokens, around.size());
    input.ids.resize(static_cast<size_t>(max_tokens - after));
    input.ids.insert(input.ids.end(), before, around.end());
  }
  if (is_own(tokenizer)) input.pooled_from = 1;
  return input;
}

Tensor embed(const LanguageModel& model, std::span<const std::string> texts, const EmbedOptions& options) {
  check_pooling(model, options.pooling);
  std::vector<EncoderInput> inputs;
  for (const std::string& text : texts) inputs.push_back(encoder_input(model, text, options.max_tokens));
  return embed_inputs(model, inputs, options);
}

Tensor embed_inputs(const LanguageModel& model, std::span<const EncoderInput> inputs, const EmbedOptions& options) {
  check_pooling(model, options.pooling);
  Tensor result = Tensor::empty({std::ssize(inputs), int64_t{model.config().transformer.d_model}});
  std::vector<Pooled> pooled;
  for (int64_t i = 0; i < std::ssize(inputs); ++i) {
    const EncoderInput& input = inputs[static_cast<size_t>(i)];
    const int64_t tokens = std::ssize(input.ids), from = options.pooling == Pooling::mean ? input.pooled_from : 0;
    pooled.emplace_back(TokenSpan{std::clamp<int64_t>(from, 0, std::max<int64_t>(0, tokens - 1)), tokens}, options, i,
                        result.data<float>() + i * result.size(1));
  }
  evaluation::each_hidden(
      model, inputs, {.batch_tokens = options.batch_tokens, .on_progress = options.on_progress},
      [&](const evaluation::States& states) { pooled[static_cast<size_t>(states.index)].add(states); });
  return result;
}

Tensor embed_spans(const LanguageModel& model, const EncoderInput& input, std::span<const TokenSpan> spans,
                   const EmbedOptions& options) {
  check_pooling(model, options.pooling);
  for (const auto [begin, end] : spans) {
    check_usage(begin >= 0 && begin < end && end <= std::ssize(input.ids),
                "[embed] a span has the tokens {} to {}, expected at least one of the input's {} tokens", begin, end,
                input.ids.size());
  }
  Tensor result = Tensor::empty({std::ssize(spans), int64_t{model.config().transformer.d_model}});
  std::vector<Pooled> pooled;
  for (int64_t i = 0; i < std::ssize(spans); ++i) {
    pooled.emplace_back(spans[static_cast<size_t>(i)], options, i, result.data<float>() + i * result.size(1));
  }
  evaluation::each_hidden(model, std::span(&input, 1),
                          {.batch_tokens = options.batch_tokens, .on_progress = options.on_progress},
                          [&](const evaluation::States& states) {
                            for (Pooled& one : pooled) one.add(states);
                          });
  return result;
}

}  // namespace alibi
