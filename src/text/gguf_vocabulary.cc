#include <algorithm>
#include <array>
#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "core/check.h"
#include "core/files.h"
#include "core/temporary_file.h"
#include "formats/json.h"
#include "text/gguf_pre_tokenizers.h"
#include "text/gguf_tokenizer.h"
#include "text/tokenizer_files.h"
#include "text/tokenizers/sentencepiece_model.h"

namespace alibi::text {
namespace {

using formats::JsonObject;

constexpr int64_t kMaxTokens = int64_t{1} << 28;

/// Numbers of an array, converted.
template <class Number>
std::vector<Number> numbers(const JsonObject& metadata, const char* key) {
  std::vector<Number> result;
  if (!metadata.has(key)) return result;
  const formats::Json& list = metadata.raw().at(key);
  check(list.is_array(), "[tokenizer] {}{} is no list, expected one of numbers", metadata.where(), key);
  result.reserve(list.size());
  for (const formats::Json& number : list) {
    check(number.is_number(), "[tokenizer] {}{} has an element that is no number", metadata.where(), key);
    result.push_back(static_cast<Number>(number.get<double>()));
  }
  return result;
}

/// What llama.cpp takes for keys that are missing.
struct Usual {
  int64_t bos = -1, eos = -1, unknown = -1, separator = -1;
  bool add_bos = false, add_eos = false, add_space_prefix = false;
};
Usual usual_of(const std::string& model, const std::string& pre) {
  if (model == "llama") return {.bos = 1, .eos = 2, .unknown = 0, .add_bos = true, .add_space_prefix = true};
  if (model == "bert") return {.bos = 101, .unknown = 100, .separator = 102, .add_bos = true};
  if (model == "t5") return {.eos = 1, .unknown = 2, .add_eos = true, .add_space_prefix = true};
  const GgufPreTokenizer* const found = model == "gpt2" ? find_gguf_pre_tokenizer(pre) : nullptr;
  return {.add_bos = found != nullptr && found->add_bos};
}

core::TemporaryFolder scratch_folder() {
  std::string name = (std::filesystem::temp_directory_path() / "alibi-tokenizer-XXXXXX").string();
  check(::mkdtemp(name.data()) != nullptr, "[convert] cannot make a folder in {}",
        std::filesystem::temp_directory_path().string());
  return core::TemporaryFolder(name);
}

GgufVocabulary vocabulary_of(const tokenizers::SentencePieceModel& model, std::string_view kind) {
  using Algorithm = tokenizers::SentencePieceModel::Algorithm;
  const bool is_bpe = model.algorithm == Algorithm::bpe;
  check_usage(is_bpe == model.byte_fallback,
              "[convert] GGUF files hold SentencePiece models of the kind BPE with bytes for unknown characters, or "
              "unigram without; the tokenizer is of the kind {} {} them",
              kind, model.byte_fallback ? "with" : "without");
  GgufVocabulary vocabulary{.model = is_bpe ? "llama" : "t5", .pre = "default"};
  vocabulary.add_space_prefix = model.dummy_prefix;
  vocabulary.remove_extra_whitespaces = model.remove_extra_spaces;
  vocabulary.precompiled_charsmap = model.charsmap;
  check_usage(!is_bpe || (model.charsmap.empty() && !model.remove_extra_spaces),
              "[convert] GGUF files hold SentencePiece models of the kind BPE without normalization, the tokenizer has "
              "one");
  for (const auto& piece : model.pieces) {
    vocabulary.tokens.push_back(piece.text);
    vocabulary.scores.push_back(piece.score);
    vocabulary.types.push_back(static_cast<int32_t>(piece.type));
    const auto id = static_cast<int64_t>(vocabulary.tokens.size()) - 1;
    if (piece.type == tokenizers::SentencePieceModel::Type::unknown) vocabulary.unknown = id;
    if (piece.text == model.begin_piece) vocabulary.bos = id;
  }
  return vocabulary;
}

GgufVocabulary vocabulary_of(const JsonObject& json, std::string_view kind) {
  GgufVocabulary vocabulary{.model = "gpt2", .pre = gguf_pre_tokenizer_name(json)};
  check_usage(json.object("model").get_or("type", "") == "BPE" && !vocabulary.pre.empty(),
              "[convert] GGUF files hold byte-level BPE with the pre-tokenizers of {}, and BPE of SentencePiece; the "
              "tokenizer, of the kind {}, is another one",
              gguf_pre_tokenizers(), kind);
  std::map<int64_t, std::pair<std::string, int32_t>> by_id;
  for (const auto& [token, id] : json.object("model").raw().at("vocab").items())
    by_id[id] = {token, int32_t{kNormalToken}};
  for (const formats::Json& added : json.raw().value("added_tokens", formats::Json::array())) {
    by_id[added.at("id")] = {added.at("content"), added.value("special", false) ? kControlToken : kUserToken};
  }
  for (const auto& [id, token] : by_id) {
    check(id >= 0 && id < kMaxTokens, "[convert] the token '{}' has the id {}, expected 0 to {}", token.first, id,
          kMaxTokens - 1);
    while (std::ssize(vocabulary.tokens) < id) {
      vocabulary.types.push_back(kUnusedToken);
      vocabulary.tokens.push_back(fmt::format("[PAD{}]", vocabulary.tokens.size()));
    }
    vocabulary.tokens.push_back(token.first);
    vocabulary.types.push_back(token.second);
  }
  for (const formats::Json& merge : json.object("model").raw().at("merges")) {
    vocabulary.merges.push_back(
        merge.is_string() ? merge.get<std::string>()
                          : fmt::format("{} {}", merge.at(0).get<std::string>(), merge.at(1).get<std::string>()));
  }
  if (vocabulary.merges.empty()) vocabulary.merges.emplace_back(kNoMerges);
  return vocabulary;
}

}  // namespace

std::optional<GgufVocabulary> read_gguf_vocabulary(const JsonObject& metadata) {
  const std::string model = metadata.get_or("tokenizer.ggml.model", "none");
  if (model == "none" || model == "no_vocab") return {};
  GgufVocabulary vocabulary;
  vocabulary.model = model;
  vocabulary.pre = metadata.get_or("tokenizer.ggml.pre", "default");
  const Usual usual = usual_of(model, vocabulary.pre);
  vocabulary.tokens = metadata.get<std::vector<std::string>>("tokenizer.ggml.tokens");
  vocabulary.merges = metadata.get_or("tokenizer.ggml.merges", std::vector<std::string>());
  vocabulary.scores = numbers<float>(metadata, "tokenizer.ggml.scores");
  vocabulary.types = numbers<int32_t>(metadata, "tokenizer.ggml.token_type");
  // Ids that a small vocabulary of such a model does not have are none.
  const auto id = [&](const char* key, int64_t otherwise) {
    const int64_t most = std::ssize(vocabulary.tokens) - 1;
    return metadata.get_int_or(key, otherwise > most ? -1 : otherwise, 0, std::max<int64_t>(most, 0));
  };
  vocabulary.bos = id("tokenizer.ggml.bos_token_id", usual.bos);
  vocabulary.eos = id("tokenizer.ggml.eos_token_id", usual.eos);
  vocabulary.unknown = id("tokenizer.ggml.unknown_token_id", usual.unknown);
  vocabulary.separator = id("tokenizer.ggml.seperator_token_id", usual.separator);  // spelled so by the format
  vocabulary.classify = id("tokenizer.ggml.cls_token_id", -1);
  vocabulary.add_bos = metadata.get_or<bool>("tokenizer.ggml.add_bos_token", usual.add_bos);
  vocabulary.add_eos = metadata.get_or<bool>("tokenizer.ggml.add_eos_token", usual.add_eos);
  vocabulary.add_space_prefix = metadata.get_or<bool>("tokenizer.ggml.add_space_prefix", usual.add_space_prefix);
  vocabulary.remove_extra_whitespaces = metadata.get_or<bool>("tokenizer.ggml.remove_extra_whitespaces", false);
  for (const uint8_t byte : numbers<uint8_t>(metadata, "tokenizer.ggml.precompiled_charsmap")) {
    vocabulary.precompiled_charsmap.push_back(static_cast<char>(byte));
  }
  return vocabulary;
}

GgufVocabulary gguf_vocabulary_of(const Tokenizer& tokenizer, int vocab_size) {
  const core::TemporaryFolder scratch = scratch_folder();
  tokenizer.save(scratch.path);
  const std::filesystem::path model = scratch.path / kSentencePieceFile, json = scratch.path / kHuggingFaceFile;
  check_usage(core::path_exists(model) || core::path_exists(json),
              "[convert] GGUF files cannot hold a tokenizer of the kind {}", tokenizer.kind());
  GgufVocabulary vocabulary =
      core::path_exists(model)
          ? vocabulary_of(tokenizers::read_sentencepiece_model(core::read_file(model), kSentencePieceFile),
                          tokenizer.kind())
          : vocabulary_of({formats::parse_json(core::read_file(json), kHuggingFaceFile), "tokenizer.json: "},
                          tokenizer.kind());
  check(std::ssize(vocabulary.tokens) <= vocab_size, "[convert] the tokenizer has {} tokens, expected at most {}",
        vocabulary.tokens.size(), vocab_size);
  while (std::ssize(vocabulary.tokens) < vocab_size) {
    vocabulary.tokens.push_back(fmt::format("[PAD{}]", vocabulary.tokens.size()));
    vocabulary.types.push_back(kUnusedToken);
    if (!vocabulary.scores.empty()) vocabulary.scores.push_back(0);
  }
  vocabulary.eos = tokenizer.end_of_text();
  // A text of at least one token, to see what a prompt adds to it. A small vocabulary may have no "a".
  std::string text = "a";
  for (int32_t id = 0; tokenizer.encode(text).empty() && id < std::min(tokenizer.vocab_size(), 300); ++id) {
    text = tokenizer.decode(std::vector<int32_t>{id});
  }
  const std::vector<int32_t> bare = tokenizer.encode(text), prompt = tokenizer.encode_prompt(text);
  if (bare.empty()) return vocabulary;
  vocabulary.add_bos = prompt.size() > bare.size() && prompt.front() != bare.front();
  vocabulary.add_eos = prompt.size() > bare.size() && prompt.back() != bare.back();
  if (vocabulary.add_bos) vocabulary.bos = prompt.front();
  return vocabulary;
}

}  // namespace alibi::text
