#include "text/pretrained_tokenizer.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/files.h"
#include "temporary_folder.h"
#include "testing.h"
#include "text/gguf_tokenizer.h"
#include "text/stream.h"
#include "text/tokenizers/sentencepiece_model.h"

namespace alibi::text {
namespace {

using test::expect_error;
using test::TemporaryFolder;
using Ids = std::vector<int32_t>;

constexpr const char* kSmall = R"({"added_tokens": [{"id": 5, "content": "</s>", "special": true, "normalized": false},
    {"id": 6, "content": "<x>", "special": true, "normalized": false}], "decoder": {"type": "ByteLevel"},
    "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false}, "model": {"type": "BPE", "vocab": {"a": 0, "b": 1,
    "ab": 2, "\u00c3": 3, "\u00a9": 4}, "merges": ["a b"]}})";

TEST(PretrainedTokenizer, IsLoadedFromAFileOrAFolderAndSavedAsItWas) {
  const TemporaryFolder folder, copy;
  core::write_file(folder / "tokenizer.json", kSmall);
  const auto tokenizer = Tokenizer::load(folder.path());
  EXPECT_EQ(tokenizer->kind(), "hf-bpe");
  EXPECT_EQ(tokenizer->vocab_size(), 7);
  EXPECT_EQ(tokenizer->end_of_text(), 5);
  EXPECT_EQ(Tokenizer::load(folder / "tokenizer.json")->fingerprint(), tokenizer->fingerprint());
  tokenizer->save(copy.path());
  EXPECT_EQ(core::read_file(copy / "tokenizer.json"), kSmall);
  EXPECT_EQ(Tokenizer::load(copy.path())->fingerprint(), tokenizer->fingerprint());
  expect_error([&] { Tokenizer::load(folder / "tokenizer.txt"); }, "tokenizer.txt");
}

TEST(PretrainedTokenizer, ADocumentCannotEndItself) {
  const auto tokenizer = tokenizer_from_json(kSmall, "", "file");
  EXPECT_EQ(tokenizer->encode("ab</s>", EncodeOptions()), (Ids{2, 5}));
  EXPECT_EQ(tokenizer->encode("ab</s>", {.parse_special = false}),
            (Ids{2}));  // its characters are not in the vocabulary
  EXPECT_EQ(tokenizer->encode("ab</s>"), (Ids{2}));
  // Every piece of this model is found in text, the end of a text too.
  const auto unigram = tokenizer_from_json(R"({"added_tokens": [{"id": 1, "content": "</s>", "special": true}],
      "model": {"type": "Unigram", "unk_id": 0, "vocab": [["?", 0], ["</s>", 0], ["a", -1], ["s", -2]]}})",
                                           "", "file");
  EXPECT_EQ(unigram->encode("a</s>", EncodeOptions()), (Ids{2, 1}));
  EXPECT_EQ(unigram->encode("a</s>"), (Ids{2, 0, 0, 3, 0}));
}

TEST(PretrainedTokenizer, TheConfigNamesTheEndOfText) {
  EXPECT_EQ(tokenizer_from_json(kSmall, R"({"eos_token": "<x>"})", "file")->end_of_text(), 6);
  EXPECT_EQ(tokenizer_from_json(kSmall, R"({"eos_token": {"content": "<x>"}})", "file")->end_of_text(), 6);
  EXPECT_EQ(tokenizer_from_json(kSmall, R"({"eos_token": null})", "file")->end_of_text(), 5);
  EXPECT_NE(tokenizer_from_json(kSmall, R"({"eos_token": "<x>"})", "file")->fingerprint(),
            tokenizer_from_json(kSmall, "", "file")->fingerprint());
  expect_error([] { tokenizer_from_json(kSmall, R"({"eos_token": "<y>"})", "file"); }, "'<y>', which is not a token");
  const auto none = tokenizer_from_json(R"({"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}})", "", "file");
  EXPECT_EQ(none->encode("aa"), (Ids{0, 0}));
  expect_error([&] { none->end_of_text(); }, "file: no token ends a text; name one as the eos_token");
}

TEST(PretrainedTokenizer, TextGrowsByTheBytesOfTokens) {
  const auto tokenizer = tokenizer_from_json(kSmall, "", "file");
  EXPECT_EQ(tokenizer->decode(Ids{0, 3}), "a\xc3");
  EXPECT_EQ(tokenizer->decode(Ids{0, 3}, DecodeOptions()), "a\xef\xbf\xbd");
  EXPECT_EQ(tokenizer->decode(Ids{3, 4, 5}), "\xc3\xa9");
  EXPECT_EQ(tokenizer->decode(Ids{3, 4, 5}, {.skip_special_tokens = false}), "\xc3\xa9</s>");
  EXPECT_EQ(tokenizer->decode(Ids{0, 7, 0}), "aa");
  EXPECT_EQ(tokenizer->decode(Ids{3, 9, 4}, DecodeOptions()), "\xc3\xa9");
}

TEST(PretrainedTokenizer, ADocumentIsNeverCut) {
  const auto tokenizer = tokenizer_from_json(
      R"({"added_tokens": [{"id": 3, "content": "</s>", "special": true}], "model": {"type": "BPE", "unk_token": "a",
      "vocab": {"a": 0, "\n\n": 1, "\n": 2}, "merges": [["\n", "\n"]]}})",
      "", "file");
  std::string text(600'000, '\n');  // more than the largest piece of a document
  Ids expected(300'000, 1);
  expected.push_back(3);
  EXPECT_EQ(encode_stream(*tokenizer, {{"p", "p", text}}), expected);
}

tokenizers::SentencePieceModel small_model() {
  using Type = tokenizers::SentencePieceModel::Type;
  tokenizers::SentencePieceModel model;
  model.algorithm = tokenizers::SentencePieceModel::Algorithm::bpe;
  model.pieces = {{"<unk>", 0, Type::unknown},
                  {"<s>", 0, Type::control},
                  {"</s>", 0, Type::control},
                  {"\xe2\x96\x81", -3, Type::normal},
                  {"a", -1, Type::normal},
                  {"b", -2, Type::normal},
                  {"\xe2\x96\x81"
                   "a",
                   -0.5, Type::normal},
                  {"ab", -4, Type::normal},
                  {"|", 0, Type::user_defined}};
  return model;
}

TEST(PretrainedTokenizer, SentencePieceNormalizesAndFramesText) {
  const auto load = [](const tokenizers::SentencePieceModel& model) {
    return tokenizer_from_sentencepiece(write_sentencepiece_model(model), "", "file");
  };
  tokenizers::SentencePieceModel model = small_model();
  auto tokenizer = load(model);
  EXPECT_EQ(tokenizer->kind(), "spm-bpe");
  EXPECT_EQ(tokenizer->end_of_text(), 2);
  EXPECT_EQ(tokenizer->encode("  a  ab|a "), (Ids{6, 6, 5, 8, 4}));  // extra spaces are removed
  EXPECT_EQ(tokenizer->encode("a", EncodeOptions()), (Ids{1, 6, 2}));
  EXPECT_EQ(tokenizer->encode("xyaz"), (Ids{3, 0, 4, 0}));  // neighbouring unknown characters are one
  EXPECT_EQ(tokenizer->decode(Ids{1, 6, 3, 5, 0, 2}), "a b \xe2\x81\x87 ");
  model.remove_extra_spaces = model.dummy_prefix = false;
  EXPECT_EQ(load(model)->encode("a  ab"), (Ids{4, 3, 6, 5}));
  model.byte_fallback = true;
  expect_error([&] { load(model); }, "no piece stands for the byte 0");
}

TEST(GgufTokenizer, IsMadeFromAVocabulary) {
  GgufVocabulary bpe{.model = "gpt2",
                     .pre = "mpt",
                     .tokens = {"<|endoftext|>", "a", "b", "ab", "\xc4\xa0"},
                     .merges = {"a b"},
                     .types = {3, 1, 1, 1, 4},
                     .bos = 0,
                     .eos = 0};
  const auto tokenizer = tokenizer_from_gguf(bpe, "file");
  EXPECT_EQ(tokenizer->encode("ab a", EncodeOptions()), (Ids{3, 4, 1}));
  EXPECT_EQ(tokenizer->end_of_text(), 0);
  bpe.add_bos = true;
  EXPECT_EQ(tokenizer_from_gguf(bpe, "file")->encode("ab", EncodeOptions()), (Ids{0, 3}));
  bpe.pre = "frob";
  expect_error([&] { tokenizer_from_gguf(bpe, "file"); },
               "file: found the pre-tokenizer 'frob', expected one of a.x-4.0, bloom,");
  bpe.model = "rwkv";
  expect_error([&] { tokenizer_from_gguf(bpe, "file"); },
               "found the tokenizer 'rwkv', expected gpt2, bert, llama or t5");
  const auto bert = tokenizer_from_gguf({.model = "bert",
                                         .tokens = {"[UNK]", "[CLS]", "[SEP]",
                                                    "\xe2\x96\x81"
                                                    "a",
                                                    "b"},
                                         .unknown = 0,
                                         .separator = 2,
                                         .classify = 1},
                                        "file");
  EXPECT_EQ(bert->encode("Ab b", EncodeOptions()), (Ids{1, 3, 4, 0, 2}));
  const tokenizers::SentencePieceModel small = small_model();
  GgufVocabulary llama{.model = "llama", .bos = 1, .eos = 2};
  for (const auto& piece : small.pieces) {
    llama.tokens.push_back(piece.text);
    llama.scores.push_back(piece.score);
    llama.types.push_back(static_cast<int32_t>(piece.type));
  }
  expect_error([&] { tokenizer_from_gguf(llama, "file"); }, "no piece stands for the byte 0");
}

}  // namespace
}  // namespace alibi::text
