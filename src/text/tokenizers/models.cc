#include "text/tokenizers/models.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/check.h"
#include "text/tokenizers/json_part.h"
#include "text/tokenizers/unicode.h"

namespace alibi::text::tokenizers {
namespace {

constexpr int32_t kMaxTokens = 1 << 24;

/// A model with whole words only.
class WordLevelModel final : public Model {
 public:
  WordLevelModel(Vocabulary vocabulary, const std::string& unknown, const std::string& where)
      : Model(std::move(vocabulary), "words"), unknown_(this->vocabulary().id_of(unknown)), where_(where) {}
  void tokenize(std::string_view word, std::vector<int32_t>& ids) const override {
    const std::optional<int32_t> id = vocabulary().id_of(word);
    check(id || unknown_, "{}: '{}' is not in the vocabulary, and no token stands for unknown words", where_, word);
    ids.push_back(id ? *id : *unknown_);
  }

 private:
  std::optional<int32_t> unknown_;
  std::string where_;
};

/// A model that takes the longest pieces from the left.
class WordPieceModel final : public Model {
 public:
  WordPieceModel(Vocabulary vocabulary, int32_t unknown, std::string prefix, size_t max_characters)
      : Model(std::move(vocabulary), "wordpiece"),
        unknown_(unknown),
        prefix_(std::move(prefix)),
        max_characters_(max_characters) {}

  void tokenize(std::string_view word, std::vector<int32_t>& ids) const override {
    const size_t before = ids.size();
    bool known = count_characters(word) <= max_characters_;
    std::string piece;
    for (size_t begin = 0; known && begin < word.size();) {
      piece = begin > 0 ? prefix_ : "";
      const size_t before_word = piece.size();
      piece += word.substr(begin, vocabulary().longest());
      known = false;
      for (; piece.size() > before_word && !known; piece.resize(last_character(piece))) {
        const std::optional<int32_t> id = vocabulary().id_of(piece);
        if (!id) continue;
        ids.push_back(*id);
        begin += piece.size() - before_word;
        known = true;
        break;
      }
    }
    if (known) return;
    ids.resize(before);
    ids.push_back(unknown_);
  }

 private:
  int32_t unknown_;
  std::string prefix_;
  size_t max_characters_;
};

}  // namespace

void Vocabulary::add(std::string token, int64_t id, size_t tokens, const std::string& where) {
  // Files leave out only a few ids. Each id takes memory.
  const int64_t most = std::min<int64_t>(kMaxTokens, static_cast<int64_t>(2 * tokens) + 1024);
  check(id >= 0 && id < most, "{}: the id of '{}' is {}, expected 0 to {} for {} tokens", where, token, id, most - 1,
        tokens);
  longest_ = std::max(longest_, token.size());
  const auto [entry, is_new] = ids_.emplace(std::move(token), static_cast<int32_t>(id));
  check(is_new, "{}: the token '{}' occurs twice", where, entry->first);
  if (id >= end()) tokens_.resize(static_cast<size_t>(id) + 1);
  const std::string*& place = tokens_[static_cast<size_t>(id)];
  check(!place, "{}: both '{}' and '{}' have the id {}", where, place ? *place : "", entry->first, id);
  place = &entry->first;
}

std::optional<int32_t> Vocabulary::id_of(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

const std::string* Vocabulary::token_of(int32_t id) const {
  return id >= 0 && id < end() ? tokens_[static_cast<size_t>(id)] : nullptr;
}

Vocabulary read_vocabulary(const Part& settings) {
  const std::string where = place_of(settings);
  const auto vocab = settings.raw().find("vocab");
  check(vocab != settings.raw().end() && vocab->is_object(), "{}: there is no vocab, an object of tokens and their ids",
        where);
  check(!vocab->empty(), "{}: vocab is empty", where);
  Vocabulary vocabulary;
  for (const auto& [token, id] : vocab->items()) {
    const bool fits = id.is_number_integer() &&
                      (!id.is_number_unsigned() || id.get<uint64_t>() <= uint64_t{std::numeric_limits<int64_t>::max()});
    check(fits, "{}: the id of '{}' in vocab is {}, expected an integer", where, token, id.dump());
    vocabulary.add(token, id.get<int64_t>(), vocab->size(), where);
  }
  return vocabulary;
}

std::unique_ptr<const Model> make_model(const Part& settings) {
  const std::string where = place_of(settings);
  // Files of older versions do not name a type.
  const std::string type = settings.get_or("type", settings.raw().contains("merges") ? "BPE" : "");
  if (type == "BPE") return make_bpe(settings);
  if (type == "Unigram") return make_unigram(settings);
  if (type == "WordLevel") {
    return std::make_unique<WordLevelModel>(read_vocabulary(settings), settings.get_or("unk_token", "<unk>"), where);
  }
  if (type == "WordPiece") {
    Vocabulary vocabulary = read_vocabulary(settings);
    const std::string unknown = settings.get_or("unk_token", "[UNK]");
    const std::optional<int32_t> id = vocabulary.id_of(unknown);
    check(id.has_value(), "{}: the unk_token '{}' is not in vocab", where, unknown);
    const int64_t most = settings.get_int_or("max_input_chars_per_word", 100, 0, int64_t{1} << 31);
    return std::make_unique<WordPieceModel>(
        std::move(vocabulary), *id, settings.get_or("continuing_subword_prefix", "##"), static_cast<size_t>(most));
  }
  refuse_type(settings, "model", "BPE, WordPiece, WordLevel or Unigram");
}

}  // namespace alibi::text::tokenizers
