#include "text/tokenizers/pipeline.h"

#include <utility>

#include "core/check.h"
#include "core/interrupt.h"
#include "text/tokenizers/json_part.h"
#include "text/tokenizers/unicode.h"

namespace alibi::text::tokenizers {
namespace {

/// Cache of the ids of words in the same text, because most words repeat.
class WordCache {
 public:
  explicit WordCache(const Model& model) : model_(model) {}

  void add(std::string_view word, std::vector<int32_t>& ids) {
    core::check_interrupt();
    if (word.size() > kLongest) return model_.tokenize(word, ids);
    auto known = words_.find(word);
    if (known == words_.end()) {
      if (words_.size() >= kMax) return model_.tokenize(word, ids);
      known = words_.emplace(word, std::vector<int32_t>()).first;
      model_.tokenize(word, known->second);
    }
    ids.insert(ids.end(), known->second.begin(), known->second.end());
  }

 private:
  static constexpr size_t kLongest = 256, kMax = size_t{1} << 17;

  const Model& model_;
  std::unordered_map<std::string, std::vector<int32_t>, StringHash, std::equal_to<>> words_;
};

}  // namespace

Pipeline::Pipeline(const Part& file) {
  check(file.has("model"), "{}: there is no model", place_of(file));
  model_ = make_model(file.object("model"));
  if (file.has("normalizer")) normalizer_ = make_normalizer(file.object("normalizer"));
  if (file.has("pre_tokenizer")) pre_tokenizer_ = make_pre_tokenizer(file.object("pre_tokenizer"));
  if (file.has("decoder")) decoder_ = make_decoder(file.object("decoder"));
  const formats::Json none;
  const auto added = file.raw().find("added_tokens");
  added_ = std::make_unique<const AddedTokens>(added == file.raw().end() ? none : *added, *model_, normalizer_,
                                               file.where());
  if (file.has("post_processor")) post_processor_ = {file.object("post_processor"), end()};
}

std::optional<int32_t> Pipeline::id_of(std::string_view token) const {
  const std::optional<int32_t> added = added_->id_of(token);
  return added ? added : model_->vocabulary().id_of(token);
}

std::vector<int32_t> Pipeline::encode(std::string_view text, bool parse_special) const {
  std::vector<int32_t> ids;
  WordCache cache(*model_);
  const TakeWord take_word = [&](std::string_view word, bool) { cache.add(word, ids); };
  const auto take_normalized = [&](int32_t id, std::string_view part, bool first) {
    if (id >= 0) {
      ids.push_back(id);
    } else if (pre_tokenizer_) {
      pre_tokenizer_(part, first, take_word);
    } else {
      cache.add(part, ids);
    }
  };
  added_->split(text, parse_special, [&](int32_t id, std::string_view part, bool first) {
    if (id >= 0) return ids.push_back(id);
    const std::string normalized = normalizer_.apply ? normalizer_.apply(std::string(part)) : std::string();
    const bool stripped = normalizer_.strips_left && is_white_space(character_at(part, 0).code);
    const std::string_view text_to_cut = normalizer_.apply ? std::string_view(normalized) : part;
    added_->split_normalized(text_to_cut, parse_special, [&](int32_t token, std::string_view rest, bool begins) {
      take_normalized(token, rest, begins && first && !stripped);
    });
  });
  return ids;
}

std::string Pipeline::decode(std::span<const int32_t> ids, bool skip_special, bool raw) const {
  std::vector<std::string> tokens;
  for (const int32_t id : ids) {
    const std::string* token = added_->token_of(id);
    if (!token) token = model_->vocabulary().token_of(id);
    if (token && !(skip_special && added_->is_special(*token))) tokens.push_back(*token);
  }
  if (decoder_) decoder_(tokens, raw);
  std::string text;
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (i > 0 && !decoder_) text += ' ';
    text += tokens[i];
  }
  return text;
}

}  // namespace alibi::text::tokenizers
