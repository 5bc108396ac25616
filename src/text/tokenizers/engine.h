// The implementation of a tokenizer: a tokenizer.json of Hugging Face's library, or a SentencePiece model.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "text/tokenizers/post_processor.h"

namespace alibi::text::tokenizers {

/// Threads may share one object.
class Engine {
 public:
  virtual ~Engine() = default;
  /// "bpe", "unigram", "wordpiece" or "words".
  virtual std::string_view algorithm() const = 0;
  /// All ids are below this number.
  virtual int32_t end() const = 0;
  virtual std::optional<int32_t> id_of(std::string_view token) const = 0;
  /// Whether the token is special.
  virtual bool is_special(std::string_view token) const = 0;

  /// `text` must be well-formed UTF-8. With `parse_special`, special tokens in the text are recognized.
  virtual std::vector<int32_t> encode(std::string_view text, bool parse_special) const = 0;
  virtual Sequence frame(std::vector<int32_t> first, const std::optional<std::vector<int32_t>>& second,
                         bool add_special) const = 0;
  /// All ids must be below end(). With `raw`, the bytes of incomplete characters are kept.
  virtual std::string decode(std::span<const int32_t> ids, bool skip_special, bool raw) const = 0;
};

}  // namespace alibi::text::tokenizers
