// The text of the tokens that were drawn.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "alibi/generate.h"
#include "alibi/tokenizer.h"
#include "generate/stop_strings.h"
#include "generate/utf8.h"

namespace alibi::generation {

/// A text that grows by tokens, and is shown as far as it is settled.
class GrowingText {
 public:
  GrowingText(const Tokenizer& tokenizer, int32_t before, const GenerateOptions& options)
      : tokenizer_(tokenizer), options_(options), stops_(options.stop), last_shown_(before) {}

  /// Returns why the text ends, if it does.
  std::optional<GenerationEnd> add(int32_t token) {
    // What the token adds may depend on the last one that stands for text: a space between words.
    const int32_t both[] = {last_shown_, token};
    const std::string added = tokenizer_.decode(both).substr(tokenizer_.decode(std::span(both).first(1)).size());
    if (!added.empty()) last_shown_ = token;
    const size_t known = text_.size();
    text_ += added;
    if (const std::optional<size_t> stop = stops_.find(text_, known)) {
      text_.resize(*stop);
      return GenerationEnd::stop;
    }
    const std::string_view settled = std::string_view(text_).substr(0, stops_.settled(text_));
    if (settled.size() > shown_) show_up_to(whole_characters(settled, shown_));
    return listens_ ? std::nullopt : std::optional(GenerationEnd::callback);
  }

  /// What was held back, for nothing will follow.
  void show_rest() { show_up_to(text_.size()); }

  std::string take() { return std::move(text_); }

 private:
  void show_up_to(size_t end) {
    if (!options_.on_text || !listens_ || end <= shown_) return;
    const size_t begin = std::exchange(shown_, end);
    listens_ = options_.on_text(std::string_view(text_).substr(begin, end - begin));
  }

  const Tokenizer& tokenizer_;
  const GenerateOptions& options_;
  StopStrings stops_;
  std::string text_;
  size_t shown_ = 0;
  bool listens_ = true;  // on_text wants more
  int32_t last_shown_;
};

}  // namespace alibi::generation
