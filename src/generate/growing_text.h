// The text of the drawn tokens: which part may be shown, and where it ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "alibi/generate.h"
#include "alibi/tokenizer.h"

namespace alibi::generation {

/// End of the last complete UTF-8 character of text. It looks back no further than `from`. A character that lacks bytes
/// at the end of text is incomplete. Bytes that can never become a character count as complete.
size_t whole_characters(std::string_view text, size_t from);

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

/// Strings that end a text.
class StopStrings {
 public:
  /// Throws UsageError if a string is empty.
  explicit StopStrings(std::vector<std::string> strings);

  /// Position in text of the first stop string. The first `known` bytes of text are known to contain none.
  std::optional<size_t> find(std::string_view text, size_t known) const;
  /// Length of the prefix of text in which no stop string can begin, whatever follows.
  size_t settled(std::string_view text) const;
  bool empty() const { return strings_.empty(); }

 private:
  std::vector<std::string> strings_;
  size_t longest_ = 0;
};

/// A text that grows by tokens. Its settled part is passed to GenerateOptions::on_text.
class GrowingText {
 public:
  GrowingText(const Tokenizer& tokenizer, std::span<const int32_t> prompt, const GenerateOptions& options)
      : decoder_(tokenizer, prompt), options_(options), stops_(options.stop) {}

  /// Returns the reason if the text ends with this token.
  std::optional<GenerationEnd> add(int32_t token);
  /// Number of tokens, from the first one on, whose text begins before any stop string, whatever follows. After a stop
  /// string was found it does not change any more; after another end all tokens count.
  int64_t settled_tokens() const { return settled_tokens_; }
  /// Shows the text that was held back. Call it at the end.
  void show_rest() { show_up_to(text_.size()); }
  std::string take() { return std::move(text_); }

 private:
  void show_up_to(size_t end);

  IncrementalDecoder decoder_;
  const GenerateOptions& options_;
  StopStrings stops_;
  std::string text_;
  size_t shown_ = 0;
  bool listens_ = true;           // false after on_text returned false
  std::deque<size_t> unsettled_;  // where the texts of the tokens begin that are not settled
  int64_t settled_tokens_ = 0;
};

}  // namespace alibi::generation
