// A text that grows by drawn tokens: sampling, penalties, log-probabilities, its visible part, and its end.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "alibi/engine.h"
#include "alibi/tokenizer.h"
#include "core/random.h"
#include "generate/sampling.h"

namespace alibi::generation {

/// End of the last complete UTF-8 character of text. It looks back no further than `from`. A character that lacks bytes
/// at the end of text is incomplete. Bytes that can never become a character count as complete.
size_t whole_characters(std::string_view text, size_t from);

/// Position in text of the first stop string. The first `known` bytes of text are known to contain none.
std::optional<size_t> find_stop(std::span<const std::string> stops, std::string_view text, size_t known);
/// Length of the prefix of text in which no stop string can begin, whatever follows.
size_t length_without_stop(std::span<const std::string> stops, std::string_view text);

/// The end-of-text token, if the model has a tokenizer that names one.
std::optional<int32_t> end_of_text(const LanguageModel& model);

/// Decodes a text token by token. What a token adds may depend on the last token before it that has a text, for example
/// a space between words.
class IncrementalDecoder {
 public:
  /// Keeps a reference to the tokenizer. `before`: the tokens before the first one that is added.
  explicit IncrementalDecoder(const Tokenizer& tokenizer, std::span<const int32_t> before = {});

  /// The bytes that the token would add.
  std::string peek(int32_t token) const;
  /// The same, and the token becomes a part of the text.
  std::string add(int32_t token);

 private:
  void begin_after(int32_t token);

  const Tokenizer& tokenizer_;
  int32_t last_ = -1;      // the last token that has a text
  size_t last_bytes_ = 0;  // of its text alone
};

/// The model's logits of the next token.
struct Logits {
  std::span<const float> row;
  double log_sum_exp = 0;  ///< needed for log-probabilities only

  float logprob(int32_t id) const {
    return static_cast<float>(static_cast<double>(row[static_cast<size_t>(id)]) - log_sum_exp);
  }
  /// The token with its log-probability and those of the `count` most likely tokens.
  EngineToken token(int32_t id, int64_t count) const;
};

/// One sample of a request. A token is a function of the logits, the request, the sample's number and the tokens drawn
/// before. The options' callbacks and `on_event` are called while it grows.
class GeneratedText {
 public:
  /// Keeps references to the model and the request. Without `has_text`, or if the model has no tokenizer, it consists
  /// of tokens only: no token ends it or is kept from it.
  GeneratedText(const LanguageModel& model, const EngineRequest& request, int64_t sample, bool has_text);

  /// Whether another token must be drawn.
  bool goes_on() const { return !end_ && std::ssize(tokens_) < options_.max_tokens; }
  void draw(const Logits& logits);
  /// Reports the end of a text that draws no tokens.
  void end_without_tokens() { report({}); }
  /// Ends the text early.
  void interrupt() { end_ = GenerationEnd::callback; }
  /// The last drawn token.
  std::span<const int32_t> last() const { return {&tokens_.back().id, 1}; }
  /// What was generated, without what the context knows.
  EngineSample finish();

 private:
  std::optional<GenerationEnd> append(int32_t token);
  void show(size_t end);
  void report(std::optional<int32_t> drawn);
  size_t tokens_in_text() const;

  const EngineRequest& request_;
  const GenerateOptions& options_;
  int64_t sample_;
  core::Random random_;
  std::optional<Penalties> penalties_;
  int32_t end_of_text_ = -1, never_ = -1;
  bool stops_ = false;  // at the end of text

  std::optional<IncrementalDecoder> decoder_;  // absent if the text consists of tokens only
  std::string text_;
  size_t shown_ = 0, reported_text_ = 0;  // bytes of text_: passed to on_text, and to on_event
  bool listens_ = true;                   // false after on_text returned false

  std::vector<EngineToken> tokens_;
  size_t reported_ = 0, settled_ = 0;  // tokens: passed to on_event, and known to begin before any stop string
  std::deque<size_t> unsettled_;       // where the texts of the tokens after the settled ones begin
  std::optional<GenerationEnd> end_;
  std::chrono::steady_clock::time_point start_ = std::chrono::steady_clock::now(), last_draw_ = start_;
};

}  // namespace alibi::generation
