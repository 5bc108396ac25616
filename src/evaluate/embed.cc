#include "alibi/embed.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/check.h"
#include "core/memory.h"
#include "core/names.h"
#include "evaluate/checks.h"

namespace alibi {
namespace {

/// Pools states [length, width]. The first state is that of the end-of-text token.
std::vector<double> pooled(const float* states, int64_t length, int64_t width, Pooling pooling) {
  const int64_t begin = pooling == Pooling::mean    ? std::min<int64_t>(1, length - 1)
                        : pooling == Pooling::first ? 0
                                                    : length - 1;
  const int64_t end = pooling == Pooling::first ? 1 : length;
  std::vector<double> sums(static_cast<size_t>(width), 0.0);
  for (int64_t t = begin; t < end; ++t) {
    for (int64_t c = 0; c < width; ++c) sums[static_cast<size_t>(c)] += static_cast<double>(states[t * width + c]);
  }
  for (double& sum : sums) sum /= static_cast<double>(end - begin);
  return sums;
}

void normalize(std::vector<double>& vector) {
  const double norm = std::sqrt(std::inner_product(vector.begin(), vector.end(), vector.begin(), 0.0));
  if (norm == 0) return;
  for (double& x : vector) x /= norm;
}

}  // namespace

const char* name_of(Pooling value) { return enum_name(value); }
Pooling pooling_from(std::string_view name) { return core::value_called<Pooling>(name, "pooling"); }

Tensor embed(const LanguageModel& model, std::span<const std::string> texts, const EmbedOptions& options) {
  const TransformerConfig& config = model.config().transformer;
  check_usage(!config.attention.causal || options.pooling != Pooling::first,
              "[embed] a decoder cannot pool the first token, which sees nothing of the text; pool the mean or the "
              "last token");
  const Tokenizer& words = model.tokenizer();
  std::vector<std::vector<int32_t>> ids;
  for (const std::string& text : texts) {
    ids.push_back(words.encode(text, EncodeOptions()));
    ids.back().insert(ids.back().begin(), words.end_of_text());
  }
  std::vector<size_t> order(ids.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return ids[a].size() < ids[b].size(); });

  const int64_t width = config.d_model;
  Tensor result = Tensor::empty({static_cast<int64_t>(texts.size()), width});
  const core::KeepMemory keep;
  for (size_t at = 0; at < order.size();) {
    const auto length = static_cast<int64_t>(ids[order[at]].size());
    const auto most = static_cast<size_t>(std::max<int64_t>(1, options.batch_tokens / length));
    std::vector<int32_t> together;
    size_t end = at;
    for (; end < order.size() && end - at < most && std::ssize(ids[order[end]]) == length; ++end) {
      together.insert(together.end(), ids[order[end]].begin(), ids[order[end]].end());
    }
    const Tensor batch = Tensor::view(together.data(), {static_cast<int64_t>(end - at), length}, DType::int32);
    const std::vector<float> states = model.hidden(batch).to_floats();
    for (const float* of_text = states.data(); at < end; ++at, of_text += length * width) {
      std::vector<double> vector = pooled(of_text, length, width, options.pooling);
      for (const double x : vector) {
        evaluation::check_finite("embed", static_cast<float>(x), "vector of text", static_cast<int64_t>(order[at]));
      }
      if (options.normalize) normalize(vector);
      std::copy(vector.begin(), vector.end(), result.data<float>() + static_cast<int64_t>(order[at]) * width);
    }
  }
  return result;
}

}  // namespace alibi
