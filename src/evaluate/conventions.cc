// The perplexities of lm-evaluation-harness and of llama-perplexity.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "alibi/loglikelihood.h"
#include "core/check.h"
#include "core/clock.h"
#include "core/memory.h"
#include "text/tokenizers/unicode.h"

namespace alibi {
namespace {

/// len(re.split(r"\s+", text))
int64_t words_of(std::string_view text) {
  int64_t words = 1;
  bool in_space = false;
  text::tokenizers::for_characters(text, [&](int32_t code, std::string_view) {
    const bool space = text::tokenizers::is_python_space(code);
    words += space && !in_space;
    in_space = space;
  });
  return words;
}

constexpr EncodeOptions kNoneAdded{.add_special_tokens = false};

}  // namespace

double RollingEvaluation::nll() const { return nll_sum / static_cast<double>(tokens); }
double RollingEvaluation::perplexity() const { return std::exp(nll()); }
double RollingEvaluation::word_perplexity() const { return std::exp(nll_sum / static_cast<double>(words)); }
double RollingEvaluation::byte_perplexity() const { return std::exp(nll_sum / static_cast<double>(bytes)); }
double RollingEvaluation::bits_per_byte() const { return nll_sum / std::numbers::ln2 / static_cast<double>(bytes); }
double RollingEvaluation::tokens_per_second() const { return static_cast<double>(tokens) / seconds; }

double ChunkEvaluation::nll() const { return nll_sum / static_cast<double>(tokens); }
double ChunkEvaluation::perplexity() const { return std::exp(nll()); }
double ChunkEvaluation::perplexity_error() const {
  const double variance = squares / static_cast<double>(tokens) - nll() * nll();
  return variance > 0 && tokens > 1 ? std::sqrt(variance / static_cast<double>(tokens - 1)) * perplexity() : 0;
}
double ChunkEvaluation::tokens_per_second() const { return static_cast<double>(tokens) / seconds; }

std::vector<Continuation> rolling_windows(std::span<const int32_t> tokens, int32_t prefix, int64_t length) {
  check_usage(length >= 1, "[evaluate] the length is {}, expected at least 1", length);
  std::vector<Continuation> windows;
  const auto count = std::ssize(tokens);
  for (int64_t begin = 0; begin < count; begin += length) {
    const int64_t end = std::min(count, begin + length);
    const auto inputs = tokens.first(static_cast<size_t>(end)).last(static_cast<size_t>(std::min(end, length + 1)));
    Continuation window{{inputs.begin(), inputs.end()}, end - begin};
    if (begin == 0) window.ids.insert(window.ids.begin(), prefix);
    windows.push_back(std::move(window));
  }
  return windows;
}

RollingEvaluation evaluate_rolling(const LanguageModel& model, std::span<const std::string> documents,
                                   const RollingOptions& options) {
  const Tokenizer& tokenizer = model.tokenizer();
  const int32_t prefix = options.prefix              ? *options.prefix
                         : tokenizer.begin_of_text() ? *tokenizer.begin_of_text()
                                                     : tokenizer.end_of_text();
  RollingEvaluation result;
  result.length = options.length;
  result.documents = std::ssize(documents);
  std::vector<Continuation> windows;
  for (const std::string& document : documents) {
    const std::vector<int32_t> tokens = tokenizer.encode(document, kNoneAdded);
    result.tokens += std::ssize(tokens);
    result.words += words_of(document);
    result.bytes += std::ssize(document);
    for (Continuation& window : rolling_windows(tokens, prefix, options.length)) windows.push_back(std::move(window));
  }
  check(result.tokens > 0, "[evaluate] the {} documents have no tokens to score, expected at least one",
        documents.size());
  const core::KeepMemory keep;
  const core::Clock::time_point start = core::Clock::now();
  for (const Loglikelihood& window : loglikelihoods(model, windows, options.computation)) result.nll_sum -= window.sum;
  result.seconds = core::seconds_since(start);
  return result;
}

ChunkEvaluation evaluate_chunks(const LanguageModel& model, const std::string& text, const ChunkOptions& options) {
  const int64_t length = options.length;
  check_usage(length >= 3, "[evaluate] the length is {}, expected at least 3: half of a chunk is scored", length);
  const Tokenizer& tokenizer = model.tokenizer();
  // A prompt begins with this token if there is one more than the text itself has.
  const std::vector<int32_t> prompt = tokenizer.encode_prompt("a"), sample = tokenizer.encode("a", kNoneAdded);
  const bool begins = prompt.size() > sample.size() && std::equal(sample.begin(), sample.end(), prompt.begin() + 1);
  const std::string_view without_end = std::string_view(text).substr(0, text.size() - (text.ends_with('\n') ? 1 : 0));
  std::vector<int32_t> tokens = tokenizer.encode(without_end, kNoneAdded);
  if (begins) tokens.insert(tokens.begin(), prompt.front());
  check(std::ssize(tokens) >= length, "[evaluate] the text has {} tokens, expected at least the length, {}",
        tokens.size(), length);

  ChunkEvaluation result;
  result.length = length;
  std::vector<Continuation> chunks;
  for (int64_t end = length; end <= std::ssize(tokens); end += length) {
    chunks.push_back({{tokens.begin() + end - length, tokens.begin() + end}, length - length / 2 - 1});
    if (begins) chunks.back().ids.front() = prompt.front();
    result.tokens += chunks.back().targets;
  }
  result.chunks = std::ssize(chunks);
  const core::KeepMemory keep;
  const core::Clock::time_point start = core::Clock::now();
  for (const Loglikelihood& chunk : loglikelihoods(model, chunks, options.computation)) {
    result.nll_sum -= chunk.sum;
    result.squares += chunk.squares;
  }
  result.seconds = core::seconds_since(start);
  return result;
}

}  // namespace alibi
