// A text that grows by drawn tokens: sampling, its end, and its visible part.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "alibi/generate.h"
#include "core/random.h"
#include "generate/growing_text.h"

namespace alibi::generation {

/// The end-of-text token, if the model has a tokenizer that names one.
std::optional<int32_t> end_of_text(const LanguageModel& model);

/// Draws one token at a time from the logits of the text so far. A token is a function of the logits, the options, the
/// sample's number and the number of tokens drawn before.
class DrawnText {
 public:
  /// Keeps references to the model and the options. Models without a tokenizer have texts of tokens only.
  DrawnText(const LanguageModel& model, std::span<const int32_t> prompt, const GenerateOptions& options,
            int64_t sample);

  /// Whether another token must be drawn.
  bool goes_on() const { return !end_ && tokens_ < options_.max_tokens; }
  int32_t draw(std::vector<float> logits);
  /// Ends the text early.
  void interrupt() { end_ = GenerationEnd::callback; }

  int64_t tokens() const { return tokens_; }
  /// Number of drawn tokens, from the first one on, that are known to be a part of the text: not the end of the text,
  /// and not behind the beginning of a stop string. At the end, all such tokens.
  int64_t tokens_in_text() const;
  GenerationEnd end() const { return end_.value_or(GenerationEnd::tokens); }
  /// Shows the text that was held back. Call it at the end.
  void show_rest() {
    if (text_) text_->show_rest();
  }
  /// Shows the rest and returns the text.
  std::string take();

 private:
  const GenerateOptions& options_;
  core::Random random_;
  std::optional<GrowingText> text_;  // absent without a tokenizer
  int32_t end_of_text_ = -1, never_ = -1;
  bool stops_ = false;
  std::vector<bool> seen_;  // tokens that the text contains; empty without a repetition penalty
  std::optional<GenerationEnd> end_;
  int64_t tokens_ = 0;
};

}  // namespace alibi::generation
