#include "text/byte_tokenizer.h"

#include <utility>

#include "alibi/tokenizer.h"
#include "text/hash.h"
#include "text/tokenizer_files.h"
#include "text/tokenizers/byte_level.h"

namespace alibi {
namespace {

constexpr int32_t kBytes = 256;
constexpr int32_t kEndOfText = 256;
constexpr const char* kByteEndOfText = "<|endoftext|>";

/// A byte-level BPE without merges, so that only the bytes remain. No regular expression splits the text into words,
/// because without merges it would change nothing.
formats::OrderedJson tokenizer_json() {
  formats::OrderedJson vocab = formats::OrderedJson::object();
  int32_t id = 0;
  for (const std::string& character : text::tokenizers::byte_characters()) vocab[character] = id++;
  return {
      {"version", "1.0"},
      {"truncation", nullptr},
      {"padding", nullptr},
      {"added_tokens",
       formats::OrderedJson::array({text::added_token<formats::OrderedJson>(kEndOfText, kByteEndOfText, true)})},
      {"normalizer", nullptr},
      {"pre_tokenizer",
       {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}}},
      {"post_processor", nullptr},
      {"decoder", {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", false}}},
      {"model",
       {{"type", "BPE"},
        {"dropout", nullptr},
        {"unk_token", nullptr},
        {"continuing_subword_prefix", nullptr},
        {"end_of_word_suffix", nullptr},
        {"fuse_unk", false},
        {"byte_fallback", false},
        {"vocab", std::move(vocab)},
        {"merges", formats::OrderedJson::array()}}},
  };
}

formats::OrderedJson tokenizer_config_json() {
  return {
      {"tokenizer_class", "PreTrainedTokenizerFast"},
      {"bos_token", kByteEndOfText},
      {"eos_token", kByteEndOfText},
      {"clean_up_tokenization_spaces", false},
  };
}

bool is_byte_vocab(const formats::JsonObject& vocab) {
  if (vocab.size() != kBytes) return false;
  int64_t id = 0;
  for (const std::string& character : text::tokenizers::byte_characters()) {
    if (!vocab.has(character) || vocab.get<int64_t>(character) != id++) return false;
  }
  return true;
}

/// A pre-tokenizer that puts a space before the text would give other ids. One that splits words would not.
bool is_byte_level(const formats::JsonObject& json, std::string_view part) {
  if (!json.has(part)) return false;
  const formats::JsonObject object = json.object(part);
  return object.get_or<std::string>("type", "") == "ByteLevel" &&
         (part == "decoder" || !object.get_or("add_prefix_space", true));
}

}  // namespace

bool text::is_byte_tokenizer(const formats::JsonObject& json) {
  if (json.has("normalizer") || json.has("post_processor") || !json.has("model")) return false;
  if (!is_byte_level(json, "pre_tokenizer") || !is_byte_level(json, "decoder")) return false;
  const formats::JsonObject model = json.object("model");
  if (model.get_or<std::string>("type", "") != "BPE" || !model.has("vocab") || !is_byte_vocab(model.object("vocab"))) {
    return false;
  }
  const formats::Json merges = model.raw().value("merges", formats::Json::array());
  const formats::Json added = json.raw().value("added_tokens", formats::Json::array());
  if (!merges.empty() || !added.is_array() || added.size() != 1) return false;
  const formats::JsonObject token(added[0], json.where() + "added_tokens[0]");
  return token.get<int64_t>("id") == kEndOfText && token.get_or("special", false);
}

uint64_t ByteTokenizer::fingerprint() const { return text::fnv1a("byte"); }

std::vector<int32_t> ByteTokenizer::encode(std::string_view text) const {
  std::vector<int32_t> ids(text.size());
  for (size_t i = 0; i < text.size(); ++i) ids[i] = static_cast<unsigned char>(text[i]);
  return ids;
}

std::string ByteTokenizer::decode_known(std::span<const int32_t> ids, const DecodeOptions*) const {
  std::string text;
  text.reserve(ids.size());
  for (const int32_t id : ids) {
    if (id != kEndOfText) text.push_back(static_cast<char>(id));
  }
  return text;
}

void ByteTokenizer::save(const std::filesystem::path& folder) const {
  formats::write_json(folder / text::kHuggingFaceFile, tokenizer_json());
  formats::write_json(folder / text::kTokenizerConfigFile, tokenizer_config_json());
  text::remove_other_tokenizers(folder, {text::kHuggingFaceFile});
}

}  // namespace alibi
