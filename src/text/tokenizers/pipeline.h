// A tokenizer.json of Hugging Face's library.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "formats/json.h"
#include "text/tokenizers/added_tokens.h"
#include "text/tokenizers/decoders.h"
#include "text/tokenizers/engine.h"
#include "text/tokenizers/json_part.h"
#include "text/tokenizers/models.h"
#include "text/tokenizers/normalizers.h"
#include "text/tokenizers/pre_tokenizers.h"

namespace alibi::text::tokenizers {

/// "truncation" and "padding" are ignored: every text is encoded whole.
class Pipeline final : public Engine {
 public:
  /// Throws Error that names the place if the file is damaged or not supported.
  explicit Pipeline(const Part& file);

  std::string_view algorithm() const override { return model_->kind(); }
  int32_t end() const override { return added_->end(); }
  std::optional<int32_t> id_of(std::string_view token) const override;
  bool is_special(std::string_view token) const override { return added_->is_special(token); }
  std::vector<int32_t> encode(std::string_view text, bool parse_special) const override;
  Sequence frame(std::vector<int32_t> first, const std::optional<std::vector<int32_t>>& second,
                 bool add_special) const override {
    return post_processor_.apply(first, second, add_special);
  }
  std::string decode(std::span<const int32_t> ids, bool skip_special, bool raw) const override;

 private:
  Normalizer normalizer_;       ///< without a function if text is not normalized
  PreTokenizer pre_tokenizer_;  ///< empty if text is a single word
  std::unique_ptr<const Model> model_;
  std::unique_ptr<const AddedTokens> added_;
  PostProcessor post_processor_;
  Decoder decoder_;  ///< empty: tokens are joined with spaces
};

}  // namespace alibi::text::tokenizers
