// Tokenizers in GGUF files: those of llama.cpp's converter, and those that are written here.
#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "formats/gguf.h"
#include "formats/json.h"
#include "shared_data.h"
#include "temporary_folder.h"
#include "testing.h"
#include "text/gguf_tokenizer.h"

namespace alibi::text {
namespace {

using Ids = std::vector<int32_t>;
using test::expect_error;

/// The vocabulary as the metadata of a file.
formats::JsonObject metadata_of(const GgufVocabulary& vocabulary) {
  formats::Json json = {{"tokenizer.ggml.model", vocabulary.model},
                        {"tokenizer.ggml.pre", vocabulary.pre},
                        {"tokenizer.ggml.tokens", vocabulary.tokens},
                        {"tokenizer.ggml.token_type", vocabulary.types},
                        {"tokenizer.ggml.add_bos_token", vocabulary.add_bos},
                        {"tokenizer.ggml.add_space_prefix", vocabulary.add_space_prefix}};
  if (!vocabulary.merges.empty()) json["tokenizer.ggml.merges"] = vocabulary.merges;
  if (!vocabulary.scores.empty()) json["tokenizer.ggml.scores"] = vocabulary.scores;
  if (vocabulary.bos >= 0) json["tokenizer.ggml.bos_token_id"] = vocabulary.bos;
  if (vocabulary.eos >= 0) json["tokenizer.ggml.eos_token_id"] = vocabulary.eos;
  if (vocabulary.unknown >= 0) json["tokenizer.ggml.unknown_token_id"] = vocabulary.unknown;
  return {json, "file: "};
}

TEST(GgufVocabulary, FixturesGiveTheExpectedIds) {
  const std::filesystem::path folder = test::shared_data().parent_path() / "fixtures" / "gguf";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << folder << " is not here";
  const formats::JsonObject expected = formats::read_json_object(folder / "expected.json");
  ASSERT_GE(expected.keys().size(), 8);
  for (const std::string& name : expected.keys()) {
    const auto tokenizer = Tokenizer::load(folder / (name + ".gguf"));
    for (const formats::Json& item : expected.raw()[name]["tokenizer_cases"]) {
      SCOPED_TRACE(name + ": " + item["text"].get<std::string>());
      const auto text = item["text"].get<std::string>();
      EXPECT_EQ(tokenizer->encode(text, {.add_special_tokens = false}), item["ids"].get<Ids>());
      if (item.contains("ids_with_special")) {
        EXPECT_EQ(tokenizer->encode(text, EncodeOptions()), item["ids_with_special"].get<Ids>());
      }
    }
  }
}

const std::string& sample() {
  static const std::string text = [] {
    std::string all;
    for (int i = 0; i < 300; ++i) all += "the quick brown fox, aged " + std::to_string(i * 7 % 31) + ", jumps\n";
    return all;
  }();
  return text;
}

TEST(GgufVocabulary, TokenizersThatAreMadeHereAreWrittenAndRead) {
  for (const char* kind : {"byte", "bpe"}) {
    SCOPED_TRACE(kind);
    const int64_t size = std::string(kind) == "byte" ? 0 : 300;
    const auto made = alibi::make_tokenizer({.kind = kind, .vocab_size = size}, std::vector<std::string>{sample()});
    const GgufVocabulary vocabulary = gguf_vocabulary_of(*made, made->vocab_size() + 3);
    EXPECT_EQ(vocabulary.model, std::string(kind) == "byte" ? "gpt2" : "llama");
    EXPECT_EQ(vocabulary.tokens.size(), made->vocab_size() + 3);
    const auto read = tokenizer_from_gguf(metadata_of(vocabulary), "file");
    for (const char* text : {"the fox", "na\xc3\xafve \xe9\x9b\xaa  x\n\n y", ""}) {
      EXPECT_EQ(read->encode(text), made->encode(text)) << text;
      EXPECT_EQ(read->encode_prompt(text), made->encode_prompt(text)) << text;
      EXPECT_EQ(read->decode(made->encode(text)), text);
    }
    EXPECT_EQ(read->end_of_text(), made->end_of_text());
    expect_error([&] { gguf_vocabulary_of(*made, made->vocab_size() - 1); }, "expected at most");
  }
  const auto unigram =
      alibi::make_tokenizer({.kind = "unigram", .vocab_size = 300}, std::vector<std::string>{sample()});
  expect_error([&] { gguf_vocabulary_of(*unigram, 300); }, "unigram");
  const auto words = alibi::make_tokenizer({.kind = "words"}, std::vector<std::string>{sample()});
  expect_error([&] { gguf_vocabulary_of(*words, 1000); }, "words");
}

TEST(GgufVocabulary, KeysThatAreMissingMeanWhatTheyMeanToOthers) {
  EXPECT_EQ(tokenizer_from_gguf(formats::JsonObject(formats::Json::object(), "file: "), "file"), nullptr);
  const auto read = [](formats::Json json) {
    json["tokenizer.ggml.tokens"] = {"<unk>", "<s>", "</s>", "\xe2\x96\x81"};
    return *read_gguf_vocabulary({std::move(json), "file: "});
  };
  const GgufVocabulary llama = read({{"tokenizer.ggml.model", "llama"}});
  EXPECT_TRUE(llama.add_bos && llama.add_space_prefix && !llama.add_eos);
  EXPECT_EQ(llama.bos, 1);
  EXPECT_EQ(llama.eos, 2);
  const GgufVocabulary gpt2 = read({{"tokenizer.ggml.model", "gpt2"}});
  EXPECT_FALSE(gpt2.add_bos);
  EXPECT_EQ(gpt2.pre, "default");
  EXPECT_EQ(gpt2.bos, -1);
  EXPECT_TRUE(read({{"tokenizer.ggml.model", "gpt2"}, {"tokenizer.ggml.pre", "llama-bpe"}}).add_bos);
  EXPECT_FALSE(read({{"tokenizer.ggml.model", "gpt2"}, {"tokenizer.ggml.pre", "dbrx"}}).add_bos);
  const GgufVocabulary t5 = read({{"tokenizer.ggml.model", "t5"}});
  EXPECT_TRUE(t5.add_eos && !t5.add_bos);
  EXPECT_EQ(read({{"tokenizer.ggml.model", "bert"}}).separator, -1);  // 102 is no id of so small a vocabulary
  expect_error([&] { read({{"tokenizer.ggml.model", "gpt2"}, {"tokenizer.ggml.eos_token_id", 4}}); }, "eos_token_id");
  expect_error([&] { read({{"tokenizer.ggml.model", "llama"}, {"tokenizer.ggml.scores", {1, "a"}}}); }, "scores");
}

TEST(GgufVocabulary, AVocabularyThatDoesNotFitItsKindIsRefused) {
  const GgufVocabulary good{.model = "gpt2", .pre = "gpt-2", .tokens = {"a", "b", "ab"}, .merges = {"a b"}};
  EXPECT_EQ(tokenizer_from_gguf(good, "m.gguf")->encode("ab"), Ids({2}));
  GgufVocabulary changed = good;
  changed.merges.clear();
  expect_error([&] { tokenizer_from_gguf(changed, "m.gguf"); }, "tokenizer.ggml.merges is missing");
  for (const char* merge : {"a c", "c a", "b a", "\u4e00 \u4e01"}) {
    changed = good;
    changed.merges.emplace_back(merge);
    expect_error([&] { tokenizer_from_gguf(changed, "m.gguf"); }, "is not in vocab");
  }
  changed = good;
  changed.model = "bert";
  changed.unknown = 0;
  expect_error([&] { tokenizer_from_gguf(changed, "m.gguf"); }, "no token begins a word");
  changed.tokens[1] =
      "\xe2\x96\x81"
      "b";
  EXPECT_EQ(tokenizer_from_gguf(changed, "m.gguf")->encode("b"), Ids({1}));
}

TEST(GgufVocabulary, PreTokenizersAreWrittenAsTheyAreRead) {
  for (const char* name :
       {"gpt-2", "mpt", "refact", "falcon", "bloom", "default", "llama-bpe", "dbrx", "qwen2", "stablelm2", "qwen35",
        "gpt-4o", "tekken", "deepseek-llm", "deepseek-coder", "deepseek-v3"}) {
    const GgufVocabulary vocabulary{.model = "gpt2",
                                    .pre = name,
                                    .tokens = {"a", "b", "c", "ab", "abc", "<|endoftext|>"},
                                    .merges = {"a b"},
                                    .types = {1, 1, 1, 1, 1, 3},
                                    .eos = 5};
    const auto tokenizer = tokenizer_from_gguf(vocabulary, "file");
    EXPECT_EQ(gguf_vocabulary_of(*tokenizer, 6).pre, name);
    const bool whole = std::string(name) == "llama-bpe" || std::string(name) == "tekken";
    EXPECT_EQ(tokenizer->encode("abc"), whole ? Ids({4}) : Ids({3, 2})) << name;
  }
}

/// Rows of the embedding without a token.
TEST(GgufVocabulary, OneTokenIsTheUnknownOne) {
  GgufVocabulary vocabulary{.model = "t5",
                            .tokens = {"<unk>", "</s>", "\xe2\x96\x81", "a", "[PAD]"},
                            .scores = {0, 0, -1, -1, 0},
                            .types = {3, 3, 1, 1, 2},
                            .eos = 1,
                            .unknown = 0};
  EXPECT_EQ(tokenizer_from_gguf(vocabulary, "m.gguf")->encode("a", {.add_special_tokens = false}), Ids({2, 3}));
  vocabulary.unknown = -1;
  vocabulary.types[0] = 2;
  expect_error([&] { tokenizer_from_gguf(vocabulary, "m.gguf"); }, "2 pieces stand for the unknown");
}

/// The file's own rule decides what stands before a prompt.
TEST(Prompt, BeginsAsItsTokenizerSays) {
  const char* model = R"({"type": "BPE", "vocab": {"a": 0, "b": 1, "<s>": 2, "</s>": 3}, "merges": []})";
  const char* added = R"([{"id": 2, "content": "<s>", "special": true, "single_word": false, "lstrip": false,
      "rstrip": false, "normalized": false}, {"id": 3, "content": "</s>", "special": true, "single_word": false,
      "lstrip": false, "rstrip": false, "normalized": false}])";
  const char* frame = R"({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
      {"Sequence": {"id": "A", "type_id": 0}}], "pair": [{"Sequence": {"id": "A", "type_id": 0}},
      {"Sequence": {"id": "B", "type_id": 1}}], "special_tokens": {"<s>": {"id": "<s>", "ids": [2], "tokens": ["<s>"]}}})";
  const auto prompt = [&](const char* processor, const std::string& config) {
    const test::TemporaryFolder folder;
    folder.write("tokenizer.json", std::string(R"({"version": "1.0", "added_tokens": )") + added +
                                       R"(, "post_processor": )" + processor + R"(, "model": )" + model + "}");
    folder.write("tokenizer_config.json", R"({"eos_token": "</s>", "bos_token": "<s>")" + config + "}");
    return Tokenizer::load(folder.path())->encode_prompt("ab");
  };
  EXPECT_EQ(prompt("null", ""), (Ids{0, 1}));
  EXPECT_EQ(prompt(frame, ""), (Ids{2, 0, 1}));
  EXPECT_EQ(prompt("null", R"(, "add_bos_token": true)"), (Ids{2, 0, 1}));
  EXPECT_EQ(prompt(frame, R"(, "add_bos_token": false)"), (Ids{0, 1}));
  EXPECT_EQ(prompt("null", R"(, "add_bos_token": true, "add_eos_token": true)"), (Ids{2, 0, 1, 3}));
  EXPECT_EQ(ByteTokenizer().encode_prompt("a"), (Ids{256, 'a'}));
}

}  // namespace
}  // namespace alibi::text
