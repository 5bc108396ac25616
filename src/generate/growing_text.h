// The text of the drawn tokens: what may be shown of it, and where it ends.
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

/// End of the last whole UTF-8 character of text. It looks back no further than `from`. A character that lacks bytes
/// at the end of text is not whole; bytes that can never become a character count as whole.
size_t whole_characters(std::string_view text, size_t from);

/// Strings that end a text.
class StopStrings {
 public:
  /// Throws UsageError if one is empty.
  explicit StopStrings(std::vector<std::string> strings);

  /// Where the first of them begins in text. The first `known` bytes of text hold none.
  std::optional<size_t> find(std::string_view text, size_t known) const;
  /// Length of the beginning of text in which no stop string can begin, whatever follows.
  size_t settled(std::string_view text) const;

 private:
  std::vector<std::string> strings_;
  size_t longest_ = 0;
};

/// A text that grows by tokens. It is shown (GenerateOptions::on_text) as far as it is settled.
class GrowingText {
 public:
  GrowingText(const Tokenizer& tokenizer, int32_t before, const GenerateOptions& options)
      : tokenizer_(tokenizer), options_(options), stops_(options.stop), last_shown_(before) {}

  /// Returns why the text ends, if it does.
  std::optional<GenerationEnd> add(int32_t token);
  /// Shows what was held back. To be called at the end.
  void show_rest() { show_up_to(text_.size()); }
  std::string take() { return std::move(text_); }

 private:
  void show_up_to(size_t end);

  const Tokenizer& tokenizer_;
  const GenerateOptions& options_;
  StopStrings stops_;
  std::string text_;
  size_t shown_ = 0;
  bool listens_ = true;  // on_text wants more
  int32_t last_shown_;
};

}  // namespace alibi::generation
