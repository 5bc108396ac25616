// Models of a tokenizer.json, which split a word into tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "formats/json.h"
#include "text/tokenizers/json_part.h"

namespace alibi::text::tokenizers {

/// Allows lookups by string views.
struct StringHash {
  using is_transparent = void;
  size_t operator()(std::string_view text) const { return std::hash<std::string_view>()(text); }
};

/// Tokens and their ids.
class Vocabulary {
 public:
  /// Throws Error that begins with `where` if an id is negative, given twice, or far above the number of tokens.
  void add(std::string token, int64_t id, size_t tokens, const std::string& where);

  std::optional<int32_t> id_of(std::string_view token) const;
  /// Null if no token has the id.
  const std::string* token_of(int32_t id) const;
  size_t size() const { return ids_.size(); }
  /// One more than the highest id.
  int32_t end() const { return static_cast<int32_t>(tokens_.size()); }
  size_t longest() const { return longest_; }

 private:
  std::unordered_map<std::string, int32_t, StringHash, std::equal_to<>> ids_;
  std::vector<const std::string*> tokens_;  ///< by id
  size_t longest_ = 0;                      ///< bytes of the longest token
};

class Model {
 public:
  Model(Vocabulary vocabulary, std::string kind) : vocabulary_(std::move(vocabulary)), kind_(std::move(kind)) {}
  Model(const Model&) = delete;
  Model& operator=(const Model&) = delete;
  virtual ~Model() = default;
  /// Appends the ids of a word. The word is not empty.
  virtual void tokenize(std::string_view word, std::vector<int32_t>& ids) const = 0;
  const Vocabulary& vocabulary() const { return vocabulary_; }
  /// "bpe", "wordpiece", "words" or "unigram".
  const std::string& kind() const { return kind_; }

 private:
  Vocabulary vocabulary_;
  std::string kind_;
};

/// Throws Error that names the place if the model is not supported.
std::unique_ptr<const Model> make_model(const Part& settings);

// The models that make_model() chooses from.
std::unique_ptr<const Model> make_bpe(const Part& settings);
std::unique_ptr<const Model> make_unigram(const Part& settings);
/// Reads the "vocab" of all models except unigram: an object of tokens and ids.
Vocabulary read_vocabulary(const Part& settings);

}  // namespace alibi::text::tokenizers
