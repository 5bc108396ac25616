// What makes tokens of text: a tokenizer.json of Hugging Face's library, or a model of SentencePiece.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizers/post_processor.h"

namespace alibi::text::tokenizers {

/// Threads may share one.
class Engine {
 public:
  virtual ~Engine() = default;
  /// "bpe", "unigram", "wordpiece" or "words".
  virtual std::string_view algorithm() const = 0;
  /// Ids are below.
  virtual int32_t end() const = 0;
  virtual std::optional<int32_t> id_of(std::string_view token) const = 0;
  /// Of special tokens alone.
  virtual bool is_special(std::string_view token) const = 0;

  /// `text` is well-formed UTF-8. With `parse_special`, special tokens that the text spells out are found in it.
  virtual std::vector<int32_t> encode(std::string_view text, bool parse_special) const = 0;
  virtual Sequence frame(std::vector<int32_t> first, const std::optional<std::vector<int32_t>>& second,
                         bool add_special) const = 0;
  /// Ids are below end(). `raw`: bytes of characters that are not whole stay as they are.
  virtual std::string decode(std::span<const int32_t> ids, bool skip_special, bool raw) const = 0;
};

}  // namespace alibi::text::tokenizers
