#include "alibi/tokenizer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <string>
#include <vector>

#include "core/files.h"
#include "temporary_folder.h"
#include "testing.h"
#include "text/stream.h"

namespace alibi::text {
namespace {

using Json = nlohmann::json;
using test::expect_error;
using test::TemporaryFolder;

std::string all_bytes() {
  std::string text(256, '\0');
  std::iota(text.begin(), text.end(), '\0');
  return text;
}

TEST(ByteTokenizer, IdsAreTheBytes) {
  const ByteTokenizer tokenizer;
  EXPECT_EQ(tokenizer.vocab_size(), 257);
  EXPECT_EQ(tokenizer.end_of_text(), 256);
  std::vector<int32_t> expected(256);
  std::iota(expected.begin(), expected.end(), 0);
  EXPECT_EQ(tokenizer.encode(all_bytes()), expected);
  EXPECT_EQ(tokenizer.decode(expected), all_bytes());
  EXPECT_TRUE(tokenizer.encode("").empty());
  EXPECT_EQ(tokenizer.encode("<|endoftext|>").size(), 13u);  // text cannot end itself
}

TEST(ByteTokenizer, EndOfTextAndIdsAfterItAreNoText) {
  const ByteTokenizer tokenizer;
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{'a', 256, 'b'}), "ab");
  // As the tokenizers library decodes these ids.
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{116, 260, 104}), "th");
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{257, INT32_MAX}), "");
  EXPECT_EQ(tokenizer.decode(std::vector<int32_t>{300, 'a'}, DecodeOptions()), "a");
  expect_error([&] { tokenizer.decode(std::vector<int32_t>{-1}); }, "found the id -1, expected at least 0");
}

TEST(ByteTokenizer, TheFileFollowsTheByteMapOfGpt2) {
  const TemporaryFolder folder;
  ByteTokenizer().save(folder.path());
  const Json json = Json::parse(core::read_file(folder / "tokenizer.json"));
  const Json& vocab = json["model"]["vocab"];
  EXPECT_EQ(vocab.size(), 256u);
  // Values of GPT-2's bytes_to_unicode.
  EXPECT_EQ(vocab["!"], 0x21);
  EXPECT_EQ(vocab["~"], 0x7e);
  EXPECT_EQ(vocab["\xc4\x80"], 0x00);  // U+0100
  EXPECT_EQ(vocab["\xc4\x8a"], '\n');  // U+010A
  EXPECT_EQ(vocab["\xc4\xa0"], ' ');   // U+0120
  EXPECT_EQ(vocab["\xc4\xa1"], 0x7f);  // U+0121
  EXPECT_EQ(vocab["\xc5\x82"], 0xa0);  // U+0142
  EXPECT_EQ(vocab["\xc5\x83"], 0xad);  // U+0143
  EXPECT_EQ(vocab["\xc2\xa1"], 0xa1);  // itself
  EXPECT_EQ(vocab["\xc3\xbf"], 0xff);  // itself
  EXPECT_EQ(json["added_tokens"][0]["id"], 256);
  EXPECT_EQ(Json::parse(core::read_file(folder / "tokenizer_config.json"))["eos_token"], "<|endoftext|>");
}

TEST(Tokenizer, IsMadeFromTextsInMemory) {
  const std::vector<std::string> texts = {"one two two", "three two one"};
  const auto words = alibi::make_tokenizer({.kind = "words"}, texts);
  EXPECT_EQ(words->kind(), "words");
  EXPECT_EQ(words->decode(words->encode("three one")), "three one");
  EXPECT_EQ(words->fingerprint(), alibi::make_tokenizer({.kind = "words"}, texts)->fingerprint());
  EXPECT_EQ(alibi::make_tokenizer({}, texts)->vocab_size(), 257);
  EXPECT_THROW(alibi::make_tokenizer({.kind = "syllables"}, texts), UsageError);
}

TEST(Tokenizer, LoadsWhatWasSaved) {
  const TemporaryFolder folder;
  ByteTokenizer().save(folder.path());
  const auto tokenizer = Tokenizer::load(folder.path());
  EXPECT_EQ(tokenizer->kind(), "byte");
  EXPECT_EQ(tokenizer->decode(tokenizer->encode(all_bytes())), all_bytes());
}

TEST(Tokenizer, WhatWouldGiveOtherIdsIsNotTheByteTokenizer) {
  const TemporaryFolder folder;
  ByteTokenizer().save(folder.path());
  const std::filesystem::path file = folder / "tokenizer.json";
  const Json good = Json::parse(core::read_file(file));
  const std::vector<std::pair<std::string, Json>> changes = {
      {"/model/merges", {"a b"}},
      {"/model/type", "Unigram"},
      {"/model/type", 3},
      {"/model/vocab/a", 98},
      {"/model/vocab/a", "97"},
      {"/model/vocab/new", 257},
      {"/model", nullptr},
      {"/model", "BPE"},
      {"/model/vocab", Json::array({1})},
      {"/normalizer", {{"type", "NFC"}}},
      {"/post_processor", {{"type", "TemplateProcessing"}}},
      {"/pre_tokenizer/add_prefix_space", true},
      {"/pre_tokenizer", nullptr},
      {"/decoder/type", "WordPiece"},
      {"/added_tokens", Json::array()},
      {"/added_tokens/0/id", 300},
      {"/added_tokens/0/special", false},
      {"/added_tokens/0", 256},
  };
  for (const auto& [place, value] : changes) {
    Json changed = good;
    changed[Json::json_pointer(place)] = value;
    core::write_file(file, changed.dump());
    try {  // it is another tokenizer, or none
      EXPECT_NE(Tokenizer::load(folder.path())->kind(), "byte") << place;
    } catch (const Error& error) {
      EXPECT_NE(std::string(error.what()).find(file.string()), std::string::npos) << error.what();
    }
  }
  core::write_file(file, good.dump());
  EXPECT_NO_THROW(Tokenizer::load(folder.path()));
}

TEST(Tokenizer, MissingAndDamagedFilesAreNamed) {
  const TemporaryFolder folder;
  expect_error([&] { Tokenizer::load(folder.path()); }, (folder / "tokenizer.json").string());
  folder.write("tokenizer.json", "{\"model\": ");
  expect_error([&] { Tokenizer::load(folder.path()); }, (folder / "tokenizer.json").string() + ": parse error");
}

TEST(Stream, DocumentsAreEndedAndKeepTheirOrder) {
  const ByteTokenizer tokenizer;
  EXPECT_EQ(encode_stream(tokenizer, {{"p", "p", "ab"}, {"q", "q", "c"}}),
            (std::vector<int32_t>{'a', 'b', 256, 'c', 256}));
  expect_error([&] { encode_stream(tokenizer, {}); }, "no documents");
}

}  // namespace
}  // namespace alibi::text
