#include "text/gguf_tokenizer.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/check.h"
#include "formats/json.h"
#include "text/gguf_pre_tokenizers.h"
#include "text/pretrained_tokenizer.h"
#include "text/tokenizer_files.h"
#include "text/tokenizers/sentencepiece_model.h"

namespace alibi::text {
namespace {

using formats::Json;

/// U+2581: begins a word in the vocabulary of a bert.
constexpr std::string_view kWordMark = "\xe2\x96\x81";

int32_t type_of(const GgufVocabulary& vocabulary, size_t id) {
  return vocabulary.types.empty() ? 1 : vocabulary.types[id];
}

/// Each token must occur once, because a token with two ids would lose one of them.
Json vocab_of(const std::vector<std::string>& tokens, const std::string& where) {
  Json vocab = Json::object();
  for (size_t id = 0; id < tokens.size(); ++id) {
    check(vocab.emplace(tokens[id], id).second, "[tokenizer] {}: the token {} occurs twice", where, id);
  }
  return vocab;
}

Json added_tokens(const GgufVocabulary& vocabulary, const std::vector<std::string>& tokens) {
  Json added = Json::array();
  for (size_t id = 0; id < tokens.size(); ++id) {
    const int32_t type = type_of(vocabulary, id);
    const auto number = static_cast<int64_t>(id);
    const bool special = type == kUnknownToken || type == kControlToken || number == vocabulary.bos ||
                         number == vocabulary.eos || number == vocabulary.unknown || number == vocabulary.separator ||
                         number == vocabulary.classify;
    if (!special && type != kUserToken) continue;
    added.push_back(added_token(number, tokens[id], special));
  }
  return added;
}

/// Special tokens before and after each text; -1 for none.
Json frame_of(const std::vector<std::string>& tokens, int64_t before, int64_t behind) {
  if (before < 0 && behind < 0) return nullptr;
  Json single = Json::array(), pair = Json::array(), special = Json::object();
  const auto add = [&](Json& pieces, int64_t id, int type) {
    if (id < 0) return;
    const std::string& token = tokens[static_cast<size_t>(id)];
    pieces.push_back({{"SpecialToken", {{"id", token}, {"type_id", type}}}});
    special[token] = {{"id", token}, {"ids", Json::array({id})}, {"tokens", Json::array({token})}};
  };
  const auto text = [](Json& pieces, const char* name, int type) {
    pieces.push_back({{"Sequence", {{"id", name}, {"type_id", type}}}});
  };
  add(single, before, 0), text(single, "A", 0), add(single, behind, 0);
  add(pair, before, 0), text(pair, "A", 0), add(pair, behind, 0), text(pair, "B", 1), add(pair, behind, 1);
  return {{"type", "TemplateProcessing"}, {"single", single}, {"pair", pair}, {"special_tokens", special}};
}

std::shared_ptr<const Tokenizer> from_json(const GgufVocabulary& vocabulary, const std::vector<std::string>& tokens,
                                           Json json, int64_t end, const std::string& where) {
  json["version"] = "1.0";
  json["added_tokens"] = added_tokens(vocabulary, tokens);
  json["model"]["vocab"] = vocab_of(tokens, where);
  std::string config;
  if (end >= 0) {
    config = formats::to_text({{"tokenizer_class", "PreTrainedTokenizerFast"},
                               {"eos_token", tokens[static_cast<size_t>(end)]},
                               {"clean_up_tokenization_spaces", false}});
  }
  return tokenizer_from_json(json.dump(-1, ' ', false, Json::error_handler_t::replace), config, where);
}

std::shared_ptr<const Tokenizer> gpt2_tokenizer(const GgufVocabulary& vocabulary, const std::string& where) {
  const GgufPreTokenizer* const pre = find_gguf_pre_tokenizer(vocabulary.pre);
  check(pre != nullptr, "[tokenizer] {}: found the pre-tokenizer '{}', expected one of {}", where, vocabulary.pre,
        gguf_pre_tokenizers());
  const Json normalizer = pre->nfc ? Json{{"type", "NFC"}} : Json();
  check(!vocabulary.merges.empty(),
        "[tokenizer] {}: tokenizer.ggml.merges is missing or empty, expected the merges of a tokenizer of kind gpt2: "
        "without them every text would be single bytes",
        where);
  Json merges = Json::array();
  for (const std::string& merge : vocabulary.merges) {
    if (merge == kNoMerges && vocabulary.merges.size() == 1) break;
    const size_t space = merge.find(' ', 1);
    check(space != std::string::npos, "[tokenizer] {}: found the merge '{}', expected two tokens and a space between",
          where, merge);
    merges.push_back({merge.substr(0, space), merge.substr(space + 1)});
  }
  Json model = {{"type", "BPE"}, {"merges", std::move(merges)}};
  if (pre->ignore_merges) model["ignore_merges"] = true;
  return from_json(vocabulary, vocabulary.tokens,
                   {{"normalizer", normalizer},
                    {"pre_tokenizer", pre->words},
                    {"post_processor", frame_of(vocabulary.tokens, vocabulary.add_bos ? vocabulary.bos : -1,
                                                vocabulary.add_eos ? vocabulary.eos : -1)},
                    {"decoder", byte_level(true)},
                    {"model", model}},
                   vocabulary.eos, where);
}

std::shared_ptr<const Tokenizer> bert_tokenizer(const GgufVocabulary& vocabulary, const std::string& where) {
  check(vocabulary.unknown >= 0, "[tokenizer] {}: tokenizer.ggml.unknown_token_id is missing", where);
  const auto begins_word = [](const std::string& token) { return token.starts_with(kWordMark); };
  check(std::any_of(vocabulary.tokens.begin(), vocabulary.tokens.end(), begins_word),
        "[tokenizer] {}: the tokenizer is of kind bert, but no token begins a word (with {}), so that every word would "
        "be "
        "unknown: the vocabulary is of another kind",
        where, kWordMark);
  std::vector<std::string> tokens = vocabulary.tokens;
  for (std::string& token : tokens) {
    if (token.starts_with(kWordMark)) {
      token.erase(0, kWordMark.size());
    } else if (!(token.starts_with('[') && token.ends_with(']'))) {
      token.insert(0, "##");
    }
  }
  const Json model = {{"type", "WordPiece"}, {"unk_token", tokens[static_cast<size_t>(vocabulary.unknown)]}};
  const int64_t end = vocabulary.separator >= 0 ? vocabulary.separator : vocabulary.eos;
  return from_json(
      vocabulary, tokens,
      {{"normalizer", {{"type", "BertNormalizer"}}},
       {"pre_tokenizer", {{"type", "BertPreTokenizer"}}},
       {"post_processor", frame_of(tokens, vocabulary.classify >= 0 ? vocabulary.classify : vocabulary.bos, end)},
       {"decoder", {{"type", "WordPiece"}, {"prefix", "##"}, {"cleanup", true}}},
       {"model", model}},
      end, where);
}

/// llama is a BPE of SentencePiece, t5 a unigram model.
std::shared_ptr<const Tokenizer> sentencepiece_tokenizer(const GgufVocabulary& vocabulary, const std::string& where) {
  using tokenizers::SentencePieceModel;
  check(vocabulary.scores.size() == vocabulary.tokens.size(),
        "[tokenizer] {}: there are {} tokens and {} scores, expected equal numbers", where, vocabulary.tokens.size(),
        vocabulary.scores.size());
  SentencePieceModel model;
  const bool is_bpe = vocabulary.model == "llama";
  model.algorithm = is_bpe ? SentencePieceModel::Algorithm::bpe : SentencePieceModel::Algorithm::unigram;
  model.byte_fallback = is_bpe;
  model.charsmap = vocabulary.precompiled_charsmap;
  model.dummy_prefix = vocabulary.add_space_prefix;
  model.remove_extra_spaces = vocabulary.remove_extra_whitespaces;
  for (size_t id = 0; id < vocabulary.tokens.size(); ++id) {
    int32_t type = type_of(vocabulary, id);
    // Phi-3's file marks the rows of the embedding that have no token as unknown, and the unknown token as another
    // type.
    if (vocabulary.unknown >= 0) {
      if (type == kUnknownToken) type = kUnusedToken;
      if (static_cast<int64_t>(id) == vocabulary.unknown) type = kUnknownToken;
    }
    model.pieces.push_back({vocabulary.tokens[id], vocabulary.scores[id], static_cast<SentencePieceModel::Type>(type)});
  }
  const auto token = [&](int64_t id, const std::string& otherwise) {
    return id < 0 ? otherwise : vocabulary.tokens[static_cast<size_t>(id)];
  };
  model.begin_piece = token(vocabulary.bos, model.begin_piece);
  model.end_piece = token(vocabulary.eos, model.end_piece);
  formats::OrderedJson config = {{"add_bos_token", vocabulary.add_bos}, {"add_eos_token", vocabulary.add_eos}};
  if (vocabulary.bos >= 0) config["bos_token"] = token(vocabulary.bos, "");
  if (vocabulary.eos >= 0) config["eos_token"] = token(vocabulary.eos, "");
  return tokenizer_from_sentencepiece(write_sentencepiece_model(model), formats::to_text(config), where);
}

}  // namespace

std::shared_ptr<const Tokenizer> tokenizer_from_gguf(const GgufVocabulary& vocabulary, const std::string& where) {
  const size_t size = vocabulary.tokens.size();
  check(size > 0, "[tokenizer] {}: there are no tokens", where);
  check(vocabulary.types.empty() || vocabulary.types.size() == size,
        "[tokenizer] {}: there are {} tokens and {} types, expected equal numbers", where, size,
        vocabulary.types.size());
  for (const int64_t id :
       {vocabulary.bos, vocabulary.eos, vocabulary.unknown, vocabulary.separator, vocabulary.classify}) {
    check(id >= -1 && id < static_cast<int64_t>(size),
          "[tokenizer] {}: a special token has the id {}, expected 0 to {}", where, id, size - 1);
  }
  if (vocabulary.model == "gpt2") return gpt2_tokenizer(vocabulary, where);
  if (vocabulary.model == "bert") return bert_tokenizer(vocabulary, where);
  if (vocabulary.model == "llama" || vocabulary.model == "t5") return sentencepiece_tokenizer(vocabulary, where);
  fail("[tokenizer] {}: found the tokenizer '{}', expected gpt2, bert, llama or t5", where, vocabulary.model);
}

std::shared_ptr<const Tokenizer> tokenizer_from_gguf(const formats::JsonObject& metadata, const std::string& where) {
  const std::optional<GgufVocabulary> vocabulary = read_gguf_vocabulary(metadata);
  return vocabulary ? tokenizer_from_gguf(*vocabulary, where) : nullptr;
}

}  // namespace alibi::text
