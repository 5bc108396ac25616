#include "text/gguf_tokenizer.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

#include "core/check.h"
#include "formats/json.h"
#include "text/pretrained_tokenizer.h"
#include "text/tokenizer_files.h"
#include "text/tokenizers/sentencepiece_model.h"

namespace alibi::text {
namespace {

using formats::Json;

/// U+2581: begins a word in the vocabulary of a bert.
constexpr std::string_view kWordMark = "\xe2\x96\x81";

Json byte_level(bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
}
Json digits(bool individual) { return {{"type", "Digits"}, {"individual_digits", individual}}; }
Json split(const char* expression) {
  return {{"type", "Split"}, {"pattern", {{"Regex", expression}}}, {"behavior", "Isolated"}, {"invert", false}};
}
Json in_turn(std::vector<Json> parts) { return {{"type", "Sequence"}, {"pretokenizers", std::move(parts)}}; }

/// The splitting rule of each pre-tokenizer name, as in the tokenizer.json files from which such GGUF files are made.
const std::map<std::string, Json>& pre_tokenizers() {
  static const auto* const table = [] {
    const Json gpt2 = byte_level(true);
    const Json apart = in_turn({digits(true), gpt2});
    const Json falcon =
        in_turn({{{"type", "Punctuation"}, {"behavior", "Contiguous"}}, gpt2, digits(false), split("[0-9][0-9][0-9]")});
    const Json bloom = in_turn({split(R"( ?[^(\s|[.,!?…。，、।۔،])]+)"), byte_level(false)});
    // llama.cpp's own, for files that name none.
    const Json usual = in_turn({split(R"([\p{P}\$\+<=>\^~\|]+)"),
                                split(R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)"),
                                split(R"(\p{N}+)"), split("[0-9][0-9][0-9]"), byte_level(false)});
    return new std::map<std::string, Json>{
        {"gpt-2", gpt2},        {"mpt", gpt2},          {"olmo", gpt2},        {"jais", gpt2},
        {"jina-es", gpt2},      {"jina-de", gpt2},      {"jina-v1-en", gpt2},  {"jina-v2-es", gpt2},
        {"jina-v2-de", gpt2},   {"phi-2", gpt2},        {"roberta-bpe", gpt2}, {"refact", apart},
        {"jina-v2-code", gpt2}, {"starcoder", apart},   {"smollm", apart},     {"command-r", apart},
        {"codeshell", apart},   {"falcon", falcon},     {"bloom", bloom},      {"poro-chat", bloom},
        {"default", usual},     {"gpt3-finnish", bloom}};
  }();
  return *table;
}

/// A pre-tokenizer without the fields that change offsets alone, and with defaults filled in.
Json plain(Json part) {
  if (part.is_object() && part.value("type", "") == "Sequence" && part.contains("pretokenizers")) {
    for (Json& member : part["pretokenizers"]) member = plain(member);
    if (part["pretokenizers"].size() == 1) return part["pretokenizers"][0];
  }
  if (!part.is_object() || part.value("type", "") != "ByteLevel") return part;
  return byte_level(part.value("use_regex", true))
      .patch({{{"op", "replace"}, {"path", "/add_prefix_space"}, {"value", part.value("add_prefix_space", true)}}});
}

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
    added.push_back({{"id", id},
                     {"content", tokens[id]},
                     {"single_word", false},
                     {"lstrip", false},
                     {"rstrip", false},
                     {"normalized", !special},
                     {"special", special}});
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
  const auto pre = pre_tokenizers().find(vocabulary.pre);
  check(pre != pre_tokenizers().end(), "[tokenizer] {}: found the pre-tokenizer '{}', expected one of {}", where,
        vocabulary.pre, gguf_pre_tokenizers());
  const Json normalizer = vocabulary.pre == "mpt" ? Json{{"type", "NFC"}} : Json();
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
  const Json model = {{"type", "BPE"}, {"merges", std::move(merges)}};
  return from_json(vocabulary, vocabulary.tokens,
                   {{"normalizer", normalizer},
                    {"pre_tokenizer", pre->second},
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
    model.pieces.push_back(
        {vocabulary.tokens[id], vocabulary.scores[id], static_cast<SentencePieceModel::Type>(type_of(vocabulary, id))});
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

std::string gguf_pre_tokenizers() {
  std::string names;
  for (const auto& [name, part] : pre_tokenizers()) names += (names.empty() ? "" : ", ") + name;
  return names;
}

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

std::string gguf_pre_tokenizer_name(const formats::JsonObject& tokenizer_json) {
  const std::string normalizer = tokenizer_json.object_or_empty("normalizer").get_or("type", "none");
  const Json found = plain(tokenizer_json.object_or_empty("pre_tokenizer").raw());
  // Without merges every byte is a token, however the text is split.
  const bool has_merges = !tokenizer_json.object("model").raw().value("merges", Json::array()).empty();
  if (normalizer == "none" && !has_merges && found == byte_level(false)) return "gpt-2";
  if (normalizer == "NFC") return found == plain(pre_tokenizers().at("mpt")) ? "mpt" : "";
  for (const char* name : {"gpt-2", "refact", "falcon", "bloom", "default"}) {
    if (normalizer == "none" && found == plain(pre_tokenizers().at(name))) return name;
  }
  return "";
}

}  // namespace alibi::text
