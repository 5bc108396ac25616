#include "text/sentencepiece_tokenizer.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <sentencepiece_processor.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "core/files.h"
#include "core/random.h"
#include "shared_data.h"
#include "temporary_folder.h"
#include "testing.h"
#include "text/corpus.h"
#include "text/make_tokenizer.h"
#include "text/stream.h"
#include "text/units.h"

namespace alibi::text {
namespace {

using test::expect_error;
using test::TemporaryFolder;

std::shared_ptr<const SentencePieceTokenizer> train_on(std::string_view text, const SentencePieceTraining& training) {
  return train_sentencepiece(training, [&]() -> std::optional<std::string_view> {
    if (text.empty()) return std::nullopt;
    const std::string_view unit = text.substr(0, unit_length(text));
    text.remove_prefix(unit.size());
    return unit;
  });
}

/// Many words of few syllables: the unigram model starts from what several words share.
std::string sample_text() {
  const std::vector<std::string> syllables = {"the", "cat", "ing", "sto", "ner", "mal", "d\u00f6g", "ran", "ly", "un"};
  const core::Random random(1);
  std::string text;
  uint64_t draw = 0;
  for (int line = 0; line < 400; ++line) {
    text += line % 7 == 0 ? "\n\t" : line % 5 == 0 ? "    " : "";
    for (int word = 0; word < 8; ++word) {
      for (uint64_t n = random.below(draw++, 3) + 1; n > 0; --n) text += syllables[random.below(draw++, 10)];
      text += word == 7 ? ".\n" : " ";
    }
  }
  return text;
}

const SentencePieceTokenizer& trained(const std::string& kind) {
  static const auto bpe = train_on(sample_text(), {"bpe", 400});
  static const auto unigram = train_on(sample_text(), {"unigram", 400});
  return kind == "bpe" ? *bpe : *unigram;
}

class SentencePiece : public testing::TestWithParam<const char*> {
 protected:
  const SentencePieceTokenizer& tokenizer() const { return trained(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Kinds, SentencePiece, testing::Values("bpe", "unigram"),
                         [](const auto& parameter) { return parameter.param; });

TEST_P(SentencePiece, DecodingGivesTheTextBackWhateverItsBytes) {
  std::string all_bytes(256, '\0');
  std::iota(all_bytes.begin(), all_bytes.end(), '\0');
  std::vector<std::string> texts = {
      "",
      " ",
      "the cat",
      " the cat ",
      "   the   cat   ",
      "\n",
      "\n\n\t\n the\r\ncat\n",
      "\u2581the\u2581cat \u2581",                        // the library's mark for a space
      "\u2585 \ufffd \ufeff \u00a0 \u3000",               // its other signs; spaces that normalisation would change
      "\ufb01 \u212b A\u030a \uff21 \u00bd",              // NFKC would change all of these
      "the \U0001f600 \u4e2d\u6587 d\u00f6g",             // outside the pieces
      "the\xff\xfe \xc3( \xe2\x96 \xed\xa0\x80 cat\x80",  // not UTF-8
      all_bytes,
      sample_text(),
      std::string(10000, 'x'),
      std::string(10000, ' '),
  };
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const core::Random random(seed);
    std::string text;
    for (uint64_t i = 0; i < 40; ++i) {
      const uint32_t bits = random.bits(i);
      text += bits % 3 == 0 ? std::string(1, static_cast<char>(bits >> 8)) : all_bytes.substr(bits >> 8 & 0x7f, 1);
      if (bits % 5 == 0) text += " the";
      if (bits % 7 == 0) text += "\u2581";
    }
    texts.push_back(text);
  }
  for (const std::string& text : texts) {
    const std::vector<int32_t> ids = tokenizer().encode(text);
    EXPECT_EQ(tokenizer().decode(ids), text);
    std::string joined;  // what a stream shows
    for (const int32_t id : ids) joined += tokenizer().decode({&id, 1});
    EXPECT_EQ(joined, text);
  }
}

TEST_P(SentencePiece, IdsAreThoseOfTheLibrary) {
  const TemporaryFolder folder;
  tokenizer().save(folder.path());
  sentencepiece::SentencePieceProcessor library;
  ASSERT_TRUE(library.Load((folder / "tokenizer.model").string()).ok());
  const std::string text = sample_text() + "  two  and   three spaces, \u20ac \n";
  for (std::string_view rest = text; !rest.empty();) {
    const size_t end = rest.find('\n');
    std::vector<int> expected;
    ASSERT_TRUE(library.Encode(rest.substr(0, end), &expected).ok());
    EXPECT_EQ(tokenizer().encode(rest.substr(0, end)), expected);
    rest.remove_prefix(end + 1);
  }
}

TEST_P(SentencePiece, PiecesAreLongerThanBytes) {
  const std::string text = sample_text();
  EXPECT_EQ(tokenizer().kind(), GetParam());
  EXPECT_LE(tokenizer().vocab_size(), 400);
  EXPECT_GT(tokenizer().vocab_size(), 258);
  EXPECT_LT(tokenizer().encode(text).size() * 2, text.size());
}

TEST_P(SentencePiece, TextCannotEndItself) {
  for (const char* text : {"</s>", "<s>", "<unk>", "<0x41>", "the </s> cat", "<pad>"}) {
    const std::vector<int32_t> ids = tokenizer().encode(text);
    EXPECT_EQ(std::count(ids.begin(), ids.end(), tokenizer().end_of_text()), 0) << text;
    EXPECT_EQ(tokenizer().decode(ids), text);
  }
  const int32_t end = tokenizer().end_of_text();
  EXPECT_EQ(tokenizer().decode({&end, 1}), "");
  const int32_t beyond = tokenizer().vocab_size(), below = -1;
  EXPECT_EQ(tokenizer().decode({&beyond, 1}), "");
  expect_error([&] { tokenizer().decode({&below, 1}); }, "found the id -1");
}

TEST_P(SentencePiece, TrainingIsDeterministic) {
  const auto again = train_on(sample_text(), {GetParam(), 400});
  EXPECT_EQ(again->fingerprint(), tokenizer().fingerprint());
  EXPECT_NE(train_on(sample_text(), {GetParam(), 390})->fingerprint(), tokenizer().fingerprint());
}

TEST_P(SentencePiece, ASmallTextHasASmallVocabulary) {
  const auto small = train_on("a\n", {GetParam(), 5000});
  EXPECT_LT(small->vocab_size(), 300);
  EXPECT_EQ(small->decode(small->encode("a b\n\u20ac")), "a b\n\u20ac");
}

TEST_P(SentencePiece, WhatCannotBeLearnedFromIsToldInWords) {
  expect_error<UsageError>(
      [&] {
        train_on("the cat\n", {GetParam(), 200});
      },
      "the vocabulary size is 200, expected at least 26");
  for (const char* text : {"", "\n\n\n", "\u2585\n"}) {
    expect_error([&] { train_on(text, {GetParam(), 1000}); }, "there is no line of text");
  }
}

/// What byte-pair encoding makes of ASCII text with the merges and the vocabulary of a tokenizer.json.
std::vector<int32_t> merged(const nlohmann::json& model, std::string_view text) {
  std::vector<std::string> symbols;
  for (const char c : text) symbols.push_back(c == ' ' ? "\u2581" : std::string(1, c));
  for (const std::string merge : model["merges"]) {  // the likeliest first
    const size_t space = merge.find(' ');
    for (size_t i = 0; i + 1 < symbols.size(); ++i) {
      if (symbols[i] != merge.substr(0, space) || symbols[i + 1] != merge.substr(space + 1)) continue;
      symbols[i] += symbols[i + 1];
      symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    }
  }
  std::vector<int32_t> ids;
  for (const std::string& symbol : symbols) ids.push_back(model["vocab"][symbol]);
  return ids;
}

TEST_P(SentencePiece, LoadsWhatWasSavedWithTheNamesThatHuggingFaceLooksFor) {
  const TemporaryFolder folder;
  ByteTokenizer().save(folder.path());  // an earlier model's
  tokenizer().save(folder.path());
  const auto loaded = Tokenizer::load(folder.path());
  EXPECT_EQ(loaded->kind(), GetParam());
  EXPECT_EQ(loaded->fingerprint(), tokenizer().fingerprint());
  EXPECT_EQ(loaded->encode("the cat sat"), tokenizer().encode("the cat sat"));
  const auto config = nlohmann::json::parse(core::read_file(folder / "tokenizer_config.json"));
  EXPECT_EQ(config["tokenizer_class"], "PreTrainedTokenizerFast");
  const auto json = nlohmann::json::parse(core::read_file(folder / "tokenizer.json"));
  const auto& model = json["model"];
  EXPECT_EQ(model["vocab"].size(), static_cast<size_t>(loaded->vocab_size()));
  EXPECT_EQ(model["byte_fallback"], true);
  EXPECT_EQ(json["added_tokens"][1]["content"], "</s>");
  if (loaded->kind() == "bpe") {
    EXPECT_EQ(model["type"], "BPE");
    EXPECT_EQ(model["vocab"]["</s>"], 1);
    for (const char* text : {"the cat ranun", " stonering  thermal cat", "ly."}) {
      EXPECT_EQ(merged(model, text), loaded->encode(text)) << text;
    }
  } else {
    EXPECT_EQ(model["type"], "Unigram");
    EXPECT_EQ(model["vocab"][1][0], "</s>");
    EXPECT_EQ(model["unk_id"], 0);
  }
}

TEST_P(SentencePiece, ADamagedModelIsRefusedOrStillGivesTextBack) {
  const auto small = train_on("the cat sat on the mat\nthe dog\n", {GetParam(), 290});
  const TemporaryFolder folder;
  small->save(folder.path());
  const std::string file = (folder / "tokenizer.model").string();
  const std::string good = core::read_file(file);
  int refused = 0, kept = 0;
  const auto try_bytes = [&](const std::string& bytes) {
    std::shared_ptr<const Tokenizer> loaded;
    try {
      loaded = std::make_shared<SentencePieceTokenizer>(bytes, "the file");
    } catch (const Error& error) {
      EXPECT_TRUE(std::string_view(error.what()).starts_with("[tokenizer] the file: ")) << error.what();
      ++refused;
      return;
    }
    const std::string text = " the cat sat\n\xff on  the \u2581 mat";
    EXPECT_EQ(loaded->decode(loaded->encode(text)), text);
    ++kept;
  };
  for (size_t size = 0; size < good.size(); ++size) try_bytes(good.substr(0, size));
  EXPECT_GT(refused, static_cast<int>(good.size()) * 9 / 10);
  const core::Random random(7);
  for (size_t at = 0; at < good.size(); ++at) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ (1 << random.below(at, 8)));
    try_bytes(bytes);
    bytes[at] = static_cast<char>(0xff);
    try_bytes(bytes);
  }
  EXPECT_GT(kept, 0);
  folder.write("tokenizer.model", good.substr(0, 100));
  expect_error([&] { Tokenizer::load(folder.path()); }, file);
  folder.write("tokenizer.model", "");
  expect_error([&] { Tokenizer::load(folder.path()); }, file);
}

TEST_P(SentencePiece, ModelsThatAskTooMuchAreRefused) {
  const auto small = train_on("the cat sat on the mat\nthe dog\n", {GetParam(), 290});
  const TemporaryFolder folder;
  small->save(folder.path());
  const std::string good = core::read_file(folder / "tokenizer.model");
  const auto field = [](int number, const std::string& content) {  // with its length in front
    std::string bytes(1, static_cast<char>(number << 3 | 2));
    size_t length = content.size();
    for (; length >= 128; length >>= 7) bytes += static_cast<char>(length % 128 + 128);
    return bytes + static_cast<char>(length) + content;
  };
  const auto piece = [&](const std::string& text, float score) {
    std::string bytes = field(1, text) + static_cast<char>(2 << 3 | 5);
    bytes.append(reinterpret_cast<const char*>(&score), sizeof score);
    return field(1, bytes);
  };
  const auto load = [&](const std::string& more) { SentencePieceTokenizer(good + more, "m"); };
  EXPECT_NO_THROW(load(piece(std::string(4096, 'a'), -1)));
  expect_error([&] { load(piece(std::string(1 << 20, 'a'), -1)); }, "m: a piece of 1048576 bytes, expected at most");
  expect_error([&] { load(piece("zz", 3e38f)); }, "m: the score of a piece is 3e+38");
  expect_error([&] { load(piece("zz", std::nanf(""))); }, "m: the score of a piece is nan");
  expect_error([&] { load(field(1, "")); }, "m: a piece is empty");
  EXPECT_NO_THROW(load(field(4, field(1, field(1, "a") + field(2, "b")))));  // a test of itself that would fail
  std::string many;
  for (int i = 0; i < 1 << 20; ++i) many += piece(fmt::format("q{:x}", i), -1);
  expect_error([&] { load(many); }, "m: more than 1048576 pieces");
}

TEST_P(SentencePiece, PiecesOfADocumentGiveTheIdsOfTheWhole) {
  const std::string line = "the cat sat on the mat ";
  std::string text;
  for (int i = 0; i < 30000; ++i) text += i % 977 == 0 ? "\n" + line : line;  // several pieces, lines of 20 KB
  std::vector<int32_t> expected = tokenizer().encode(text);
  expected.push_back(tokenizer().end_of_text());
  EXPECT_EQ(encode_stream(tokenizer(), {{"p", "p", text}}), expected);
}

TEST(MakeTokenizer, LearnsEightThousandPiecesIfTheTextHasThem) {
  const core::Random random(2);
  std::string text;
  for (uint64_t word = 0; word < 20'000; ++word) {
    const uint64_t letters = random.below(word, 26 * 26 * 26);
    for (uint64_t rest = letters + 26 * 26; rest > 0; rest /= 26) text += static_cast<char>('a' + rest % 26);
    text += word % 10 == 9 ? '\n' : ' ';
  }
  const TemporaryFolder folder;
  const Corpus corpus = read_corpus({folder.write("text.txt", text)}, {});
  EXPECT_EQ(make_tokenizer({.kind = "bpe"}, corpus.train)->vocab_size(), 8192);
}

TEST(SharedData, NovelsComeBackFromPieces) {
  const std::filesystem::path novel = test::shared_data() / "novels/valid/emma.txt";
  if (!std::filesystem::exists(novel)) GTEST_SKIP() << "no novels at " << novel << " (set ALIBI_SHARED_DATA)";
  const std::string text = core::read_file(novel);
  for (const char* kind : {"bpe", "unigram"}) {
    const auto tokenizer = train_on(std::string_view(text).substr(0, 200000), {kind, 2000});
    EXPECT_EQ(tokenizer->vocab_size(), 2000);
    const std::vector<int32_t> ids = tokenizer->encode(text);
    EXPECT_TRUE(tokenizer->decode(ids) == text);
    EXPECT_LT(ids.size() * 3, text.size());
  }
}

}  // namespace
}  // namespace alibi::text
