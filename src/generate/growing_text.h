// The text of the drawn tokens: which part may be shown, and where it ends.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
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

/// Strings that end a text.
class StopStrings {
 public:
  /// Throws UsageError if a string is empty.
  explicit StopStrings(std::vector<std::string> strings);

  /// Position in text of the first stop string. The first `known` bytes of text are known to contain none.
  std::optional<size_t> find(std::string_view text, size_t known) const;
  /// Length of the prefix of text in which no stop string can begin, whatever follows.
  size_t settled(std::string_view text) const;

 private:
  std::vector<std::string> strings_;
  size_t longest_ = 0;
};

/// A text that grows by tokens. Its settled part is passed to GenerateOptions::on_text.
class GrowingText {
 public:
  GrowingText(const Tokenizer& tokenizer, int32_t before, const GenerateOptions& options)
      : tokenizer_(tokenizer), options_(options), stops_(options.stop), last_shown_(before) {}

  /// Returns the reason if the text ends with this token.
  std::optional<GenerationEnd> add(int32_t token);
  /// Shows the text that was held back. Call it at the end.
  void show_rest() { show_up_to(text_.size()); }
  std::string take() { return std::move(text_); }

 private:
  void show_up_to(size_t end);

  const Tokenizer& tokenizer_;
  const GenerateOptions& options_;
  StopStrings stops_;
  std::string text_;
  size_t shown_ = 0;
  bool listens_ = true;  // false after on_text returned false
  int32_t last_shown_;
};

}  // namespace alibi::generation
