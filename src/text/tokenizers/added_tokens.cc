#include "text/tokenizers/added_tokens.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "text/tokenizers/json_part.h"
#include "text/tokenizers/unicode.h"

namespace alibi::text::tokenizers {

AddedTokens::AddedTokens(const formats::Json& list, const Model& model, const Normalizer& normalizer,
                         const std::string& prefix)
    : end_(model.vocabulary().end()) {
  const std::string where = "[tokenizer] " + prefix.substr(0, prefix.size() - std::min<size_t>(prefix.size(), 2));
  check(list.is_array() || list.is_null(), "{}: added_tokens is not a list", where);
  const auto model_size = static_cast<int32_t>(model.vocabulary().size());
  int32_t highest = -1;
  std::vector<Token> special, others;
  for (size_t i = 0; i < list.size(); ++i) {
    const Part part = view_of(list[i], fmt::format("{}added_tokens[{}].", prefix, i));
    Token token;
    token.content = part.get<std::string>("content");
    token.special = part.get_or("special", false);
    token.single_word = part.get_or("single_word", false);
    token.lstrip = part.get_or("lstrip", false);
    token.rstrip = part.get_or("rstrip", false);
    token.normalized = part.get_or("normalized", !token.special);
    const auto told = part.get<int64_t>("id");
    if (token.content.empty()) continue;
    const bool known = ids_.contains(token.content);
    const std::optional<int32_t> in_model = model.vocabulary().id_of(token.content);
    token.id = known      ? ids_.find(token.content)->second
               : in_model ? *in_model
                          : (highest >= model_size ? highest + 1 : model_size);
    check(told == token.id,
          "{}: the added token '{}' has the id {}, expected {}: that of the model's vocabulary, or the next free one",
          where, token.content, told, token.id);
    const std::string* owner = model.vocabulary().token_of(token.id);
    check(in_model || !owner, "{}: the added token '{}' has the id of '{}'", where, token.content, owner ? *owner : "");
    highest = std::max(highest, token.id);
    end_ = std::max(end_, token.id + 1);
    ids_.insert_or_assign(token.content, token.id);
    // A token that is searched for in normalized text is decoded to its unnormalized content.
    tokens_.insert_or_assign(token.id,
                             token.normalized && normalizer.apply ? normalizer.apply(token.content) : token.content);
    if (token.special) special_.insert(token.content);
    if (!known) (token.special ? special : others).push_back(std::move(token));
  }
  for (std::vector<Token>* tokens : {&special, &others}) {
    for (const Token& token : *tokens) {
      Search& search = token.normalized ? after_ : before_;
      search.add(token, token.normalized && normalizer.apply ? normalizer.apply(token.content) : token.content);
    }
  }
  before_.finish();
  after_.finish();
}

std::optional<int32_t> AddedTokens::id_of(std::string_view token) const {
  const auto found = ids_.find(token);
  return found == ids_.end() ? std::nullopt : std::optional(found->second);
}

const std::string* AddedTokens::token_of(int32_t id) const {
  const auto found = tokens_.find(id);
  return found == tokens_.end() ? nullptr : &found->second;
}

void AddedTokens::Search::finish() {
  std::vector<std::pair<std::string_view, int32_t>> entries;
  for (size_t i = 0; i < texts_.size(); ++i) {
    entries.emplace_back(texts_[i], static_cast<int32_t>(i));
    if (!texts_[i].empty()) begins_[static_cast<unsigned char>(texts_[i][0])] = true;
  }
  trie_ = std::make_unique<const Trie>(std::move(entries));
}

void AddedTokens::Search::split(std::string_view text, bool with_special, const Take& take) const {
  size_t given = 0;  // text up to here has been passed on
  const auto give = [&](size_t end) {
    if (given < end) take(-1, text.substr(given, end - given), given == 0);
  };
  for (size_t at = 0; at < text.size();) {
    const auto [length, index] = begins_[static_cast<unsigned char>(text[at])] ? trie_->longest(text.substr(at))
                                                                               : std::pair<size_t, int32_t>(0, -1);
    if (length == 0) {
      ++at;
      continue;
    }
    const Token& token = tokens_[static_cast<size_t>(index)];
    size_t begin = at, end = at + length;
    at = end;
    if (token.special && !with_special) continue;
    if (token.single_word) {
      const auto is_word = [&](size_t place) { return is_word_character(character_at(text, place).code); };
      if (begin > 0 && is_word(last_character(text.substr(0, begin)))) continue;
      if (end < text.size() && is_word(end)) continue;
    }
    while (token.lstrip && begin > given) {
      const size_t before = last_character(text.substr(0, begin));
      if (!is_white_space(character_at(text, before).code)) break;
      begin = before;
    }
    while (token.rstrip && end < text.size() && is_white_space(character_at(text, end).code)) {
      end += character_at(text, end).length;
    }
    give(begin);
    take(token.id, {}, false);
    given = end;
  }
  give(text.size());
}

}  // namespace alibi::text::tokenizers
