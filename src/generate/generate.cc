#include <algorithm>
#include <cmath>

#include "alibi/language_model.h"
#include "core/check.h"
#include "core/memory.h"
#include "generate/sampling.h"
#include "generate/utf8.h"

namespace alibi {

std::string LanguageModel::generate(std::string_view prompt, const GenerateOptions& options) const {
  check_usage(options.max_tokens >= 0, "[generate] {} tokens asked for, expected at least 0", options.max_tokens);
  check_usage(std::isfinite(options.temperature) && options.temperature >= 0,
              "[generate] the temperature is {}, expected at least 0", options.temperature);
  check_usage(options.top_p > 0 && options.top_p <= 1, "[generate] top_p is {}, expected above 0, at most 1",
              options.top_p);
  check_usage(options.top_k >= 0, "[generate] top_k is {}, expected at least 0", options.top_k);
  check(config().transformer.causal, "[generate] the model is an encoder; generation needs a causal transformer");

  const Tokenizer& words = tokenizer();
  const int32_t end_of_text = words.end_of_text();
  const bool stops = options.stop_at_end_of_text && !words.end_of_text_ends_lines();
  const int32_t never = stops || words.end_of_text_ends_lines() ? -1 : end_of_text;
  std::vector<int32_t> ids{end_of_text};
  const std::vector<int32_t> encoded = words.encode(prompt);
  ids.insert(ids.end(), encoded.begin(), encoded.end());

  const Random random(options.seed, mix(0x9e4e, 0));
  std::string text;
  size_t shown = 0;
  int32_t shown_token = ids.back();
  const KeepMemory keep;
  for (int64_t n = 0; n < options.max_tokens; ++n) {
    const int64_t length = static_cast<int64_t>(ids.size());
    const Tensor next = next_logits(Tensor::view(ids.data(), {1, length}, DType::int32)).to(Device::cpu);
    const std::span<const float> logits(next.data<float>(), static_cast<size_t>(next.elements()));
    const int32_t token = sample_token(logits, options, random, static_cast<uint64_t>(n), never);
    if (token == end_of_text && stops) break;
    ids.push_back(token);
    // What the token adds may depend on the last one that stands for text: a space between words.
    const int32_t last_two[] = {shown_token, token};
    const std::string added = words.decode(last_two).substr(words.decode(std::span(last_two).first(1)).size());
    if (!added.empty()) shown_token = token;
    text += added;
    if (options.on_text) {
      const size_t whole = whole_characters(text, shown);
      if (whole > shown && !options.on_text(std::string_view(text).substr(shown, whole - shown))) return text;
      shown = whole;
    }
  }
  if (options.on_text && shown < text.size()) options.on_text(std::string_view(text).substr(shown));
  return text;
}

}  // namespace alibi
