#include "text/gguf_pre_tokenizers.h"

#include <initializer_list>
#include <map>
#include <utility>
#include <vector>

namespace alibi::text {
namespace {

using formats::Json;

/// Most letters that have an upper and a lower case.
constexpr const char* kCasedLetters =
    "\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376"
    "\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f"
    "\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d"
    "\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb"
    "\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128"
    "\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4"
    "\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf"
    "\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3"
    "\U000104d8-\U000104fb\U00010c80-\U00010cb2\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943";

Json digits(bool individual) { return {{"type", "Digits"}, {"individual_digits", individual}}; }
Json split(const std::string& expression) {
  return {{"type", "Split"}, {"pattern", {{"Regex", expression}}}, {"behavior", "Isolated"}, {"invert", false}};
}
Json in_turn(std::vector<Json> parts) { return {{"type", "Sequence"}, {"pretokenizers", std::move(parts)}}; }
/// Splits at each expression in turn; what results is encoded as bytes.
Json split_by(std::initializer_list<std::string> expressions) {
  std::vector<Json> parts;
  for (const std::string& expression : expressions) parts.push_back(split(expression));
  parts.push_back(byte_level(false));
  return in_turn(std::move(parts));
}

/// The words of Llama 3 and its followers, which differ in how many digits stay together.
std::string llama_words(const std::string& numbers) {
  return R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|)" + numbers +
         R"(| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
}

/// Words that begin with upper-case letters, followed by `suffix`.
std::string cased_words(const std::string& suffix, const std::string& numbers) {
  const std::string upper = R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])", lower = R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])";
  const std::string before = R"([^\r\n\p{L}\p{N}]?)";
  return before + upper + '*' + lower + '+' + suffix + '|' + before + upper + '+' + lower + '*' + suffix + '|' +
         numbers + R"(| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
}

using Table = std::map<std::string, GgufPreTokenizer>;

Table make_table() {
  Table table;
  const auto add = [&](const GgufPreTokenizer& pre, std::initializer_list<const char*> names) {
    for (const char* name : names) table.emplace(name, pre);
  };
  const Json gpt2 = byte_level(true);
  add({.words = gpt2},
      {"gpt-2", "olmo", "jais", "jina-es", "jina-de", "jina-v1-en", "jina-v2-es", "jina-v2-de", "phi-2", "roberta-bpe",
       "exaone4", "gigachat", "a.x-4.0", "mellum", "modern-bert", "trillion", "granite-docling"});
  add({.words = gpt2, .nfc = true}, {"mpt"});
  const Json apart = in_turn(std::vector<Json>{digits(true), gpt2});
  add({.words = apart},
      {"refact", "jina-v2-code", "starcoder", "smollm", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2"});
  add({.words = in_turn(std::vector<Json>{
           {{"type", "Punctuation"}, {"behavior", "Contiguous"}}, gpt2, digits(false), split("[0-9][0-9][0-9]")})},
      {"falcon"});
  const std::string bloom = R"( ?[^(\s|[.,!?…。，、।۔،])]+)";
  add({.words = split_by({bloom})}, {"bloom", "poro-chat", "gpt3-finnish"});
  add({.words = split_by({bloom, R"(\p{N})"})}, {"viking"});
  // llama.cpp's own, for files that name none.
  add({.words = split_by({R"([\p{P}\$\+<=>\^~\|]+)",
                          R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)", R"(\p{N}+)",
                          "[0-9][0-9][0-9]"})},
      {"default"});

  const Json by_three = split_by({llama_words(R"(\p{N}{1,3})")}), by_one = split_by({llama_words(R"(\p{N})")});
  add({.words = by_three, .ignore_merges = true, .add_bos = true},
      {"llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "pixtral", "midm-2.0", "lfm2", "jina-v5-nano"});
  add({.words = by_three, .ignore_merges = true}, {"glm4", "glm5"});
  add({.words = by_three}, {"dbrx", "smaug-bpe", "chatglm-bpe"});
  add({.words = by_one, .nfc = true}, {"qwen2"});
  add({.words = by_one},
      {"deepseek-r1-qwen", "kormo", "f2llmv2", "megrez", "stablelm2", "hunyuan", "solar-open", "grok-2"});
  add({.words = split_by({R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}|)"
                          R"( ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"})},
      {"qwen35"});
  add({.words = split_by({R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|)"
                          R"( ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)|\s{128}(?!\S)|)"
                          R"(\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1})"})},
      {"jais-2"});
  const std::string contraction = "(?i:'s|'t|'re|'ve|'m|'ll|'d)?";
  add({.words = split_by({cased_words(contraction, R"(\p{N}{1,3})")})},
      {"gpt-4o", "llama4", "kanana2", "talkie", "minimax-m2"});
  add({.words = split_by({cased_words("", R"(\p{N})")}), .ignore_merges = true, .add_bos = true}, {"tekken"});

  const std::string han = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+";
  add({.words = split_by({"[\r\n]", R"(\s?[A-Za-z)" + std::string(kCasedLetters) + "]+",
                          "\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+", R"(\s+$)", han,
                          R"(\p{N}+)"})},
      {"deepseek-llm"});
  add({.words = split_by({"[\r\n]", R"(\s?\p{L}+)", R"(\s?\p{P}+)", han, R"(\p{N})"})}, {"deepseek-coder"});
  add({.words = split_by({R"(\p{N}{1,3})", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+",
                          R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+|)"
                          R"( ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)"})},
      {"deepseek-v3", "hunyuan-dense", "joyai-llm", "hy_v4"});
  return table;
}

const Table& pre_tokenizers() {
  static const Table* const table = new Table(make_table());
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

}  // namespace

Json byte_level(bool use_regex) {
  return {{"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
}

const GgufPreTokenizer* find_gguf_pre_tokenizer(const std::string& name) {
  const auto found = pre_tokenizers().find(name);
  return found == pre_tokenizers().end() ? nullptr : &found->second;
}

std::string gguf_pre_tokenizers() {
  std::string names;
  for (const auto& [name, pre] : pre_tokenizers()) names += (names.empty() ? "" : ", ") + name;
  return names;
}

std::string gguf_pre_tokenizer_name(const formats::JsonObject& tokenizer_json) {
  const std::string normalizer = tokenizer_json.object_or_empty("normalizer").get_or("type", "none");
  const Json found = plain(tokenizer_json.object_or_empty("pre_tokenizer").raw());
  const Json& model = tokenizer_json.object("model").raw();
  // Without merges every byte is a token, however the text is split.
  const bool has_merges = !model.value("merges", Json::array()).empty();
  if (normalizer == "none" && !has_merges && found == byte_level(false)) return "gpt-2";
  const bool ignores_merges = model.value("ignore_merges", false);
  // The first name of each kind.
  for (const char* name :
       {"gpt-2", "mpt", "refact", "falcon", "bloom", "default", "llama-bpe", "dbrx", "qwen2", "stablelm2", "qwen35",
        "gpt-4o", "tekken", "deepseek-llm", "deepseek-coder", "deepseek-v3"}) {
    const GgufPreTokenizer& pre = pre_tokenizers().at(name);
    if (normalizer == (pre.nfc ? "NFC" : "none") && ignores_merges == pre.ignore_merges && found == plain(pre.words)) {
      return name;
    }
  }
  return "";
}

}  // namespace alibi::text
