// Tokens that are searched for in the text before it is split into words: special tokens and tokens that were added
// later.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "formats/json.h"
#include "text/tokenizers/models.h"
#include "text/tokenizers/normalizers.h"
#include "text/tokenizers/trie.h"

namespace alibi::text::tokenizers {

class AddedTokens {
 public:
  /// `list` is "added_tokens" of the file. Ids are assigned as in Hugging Face's library: a token of the model keeps
  /// its id, the others follow the highest one. Throws Error that begins with `prefix`.
  AddedTokens(const formats::Json& list, const Model& model, const Normalizer& normalizer, const std::string& prefix);

  /// Receives text between tokens (id -1, never empty) or a token. `first` tells whether it is at the beginning of the
  /// text.
  using Take = std::function<void(int32_t id, std::string_view text, bool first)>;
  /// Splits the text at tokens that are searched for before normalization.
  void split(std::string_view text, bool with_special, const Take& take) const {
    before_.split(text, with_special, take);
  }
  /// Splits normalized text at tokens that are searched for in normalized text.
  void split_normalized(std::string_view text, bool with_special, const Take& take) const {
    after_.split(text, with_special, take);
  }

  std::optional<int32_t> id_of(std::string_view token) const;
  /// Returns null if no added token has the id.
  const std::string* token_of(int32_t id) const;
  bool is_special(std::string_view token) const { return special_.contains(std::string(token)); }
  /// One more than the highest id, and at least the model's end().
  int32_t end() const { return end_; }

 private:
  struct Token {
    std::string content;
    int32_t id = -1;
    bool single_word = false, lstrip = false, rstrip = false, normalized = false, special = false;
  };
  /// Some of the tokens with the strings that are searched for.
  class Search {
   public:
    void add(const Token& token, std::string text) { tokens_.push_back(token), texts_.push_back(std::move(text)); }
    void finish();
    void split(std::string_view text, bool with_special, const Take& take) const;

   private:
    std::vector<Token> tokens_;
    std::vector<std::string> texts_;
    std::unique_ptr<const Trie> trie_;
    std::vector<bool> begins_ = std::vector<bool>(256);  ///< whether a token begins with the byte
  };

  Search before_, after_;
  std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>> ids_;
  std::unordered_map<int32_t, std::string> tokens_;
  std::unordered_set<std::string> special_;
  int32_t end_ = 0;
};

}  // namespace alibi::text::tokenizers
