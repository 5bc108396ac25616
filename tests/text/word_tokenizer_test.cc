#include "text/word_tokenizer.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "core/files.h"
#include "shared_data.h"
#include "temporary_folder.h"
#include "testing.h"
#include "text/stream.h"

namespace alibi::text {
namespace {

using test::expect_error;
using test::TemporaryFolder;
using Ids = std::vector<int32_t>;

WordTokenizer of(std::string_view text, int64_t vocab_size = 0, int64_t min_count = 1) {
  WordCounter counter;
  counter.add(text);
  return WordTokenizer(counter.vocabulary(vocab_size, min_count));
}

TEST(WordTokenizer, NumbersWordsByFallingCountAndThenByTheirBytes) {
  const WordTokenizer tokenizer = of("b a c\nb Z c b\n");
  EXPECT_EQ(tokenizer.vocab_size(), 8);  // four special ones, b, c, Z, a
  EXPECT_EQ(tokenizer.encode("b c Z a"), (Ids{4, 5, 6, 7}));
  EXPECT_EQ(tokenizer.end_of_text(), 2);
}

TEST(WordTokenizer, EveryLineIsEndedBlankOnesToo) {
  const WordTokenizer tokenizer = of("a b\n");
  EXPECT_EQ(tokenizer.encode("a b\n\n \nb"), (Ids{4, 5, 2, 2, 2, 5}));
  EXPECT_EQ(tokenizer.decode(tokenizer.encode("  a \t b\r\n\nb")), "a b\n\nb");
  EXPECT_TRUE(tokenizer.encode("").empty());
  EXPECT_EQ(tokenizer.decode({}), "");
}

TEST(WordTokenizer, AStreamEndsOnlyTheLinesThatAreStillOpen) {
  const WordTokenizer tokenizer = of("a b\n");
  EXPECT_EQ(encode_stream(tokenizer, {{"p", "p", "a\n"}, {"q", "q", "b"}, {"r", "r", "\n"}}), (Ids{4, 2, 5, 2, 2}));
}

TEST(WordTokenizer, UnknownWordsAndNamesOfSpecialTokensAreUnknown) {
  const WordTokenizer tokenizer = of("a <unk> <unk> <unk> </s> <s>\n");
  EXPECT_EQ(tokenizer.encode("a <unk> new </s> <s> <pad> a"), (Ids{4, 3, 3, 3, 3, 3, 4}));
  EXPECT_EQ(tokenizer.decode(Ids{4, 3, 1, 0, 4}), "a <unk> a");
  EXPECT_EQ(tokenizer.decode(Ids{4, 8, 4}), "a a");
  expect_error([&] { tokenizer.decode(Ids{-1}); }, "found the id -1");
}

TEST(WordTokenizer, WhitespaceIsThatOfUnicode) {
  const WordTokenizer tokenizer = of("a");
  for (const char* space : {" ", "\t", "\v", "\f", "\r", "\x1c", "\x1f", "\u0085", "\u00a0", "\u1680", "\u2000",
                            "\u200a", "\u2028", "\u2029", "\u202f", "\u205f", "\u3000"}) {
    EXPECT_EQ(tokenizer.encode(std::string("a") + space + "a"), (Ids{4, 4})) << space;
  }
  for (const char* letter : {"\u00e9", "\u200b", "\u2010", "\u3001", "\x1b", "\xe2", "\xe2\x80", "\xc2"}) {
    EXPECT_EQ(tokenizer.encode(std::string("a") + letter + "a"), (Ids{3})) << letter;
  }
}

TEST(WordTokenizer, TheVocabularyIsPaddedToAMultipleOf8AndCanBeLimited) {
  EXPECT_EQ(of("a b c d e").vocab_size(), 16);
  EXPECT_EQ(of("a b c d").vocab_size(), 8);
  EXPECT_EQ(of("").vocab_size(), 8);
  EXPECT_EQ(of("a a b b c", 0, 2).encode("a b c"), (Ids{4, 5, 3}));
  EXPECT_EQ(of("a a a b b c", 6).encode("a b c"), (Ids{4, 5, 3}));
  const WordTokenizer named = of("madeupword0000 a");
  EXPECT_EQ(named.encode("a madeupword0000 madeupword0001"), (Ids{4, 5, 6}));
  expect_error<UsageError>([] { of("a b", 4); }, "the vocabulary size is 4");
}

TEST(WordTokenizer, LoadsWhatWasSavedInTheFormOfFairseq) {
  const TemporaryFolder folder;
  const WordTokenizer tokenizer = of("the cat the dog\ncaf\u00e9 the");
  ByteTokenizer().save(folder.path());  // an earlier model's
  tokenizer.save(folder.path());
  EXPECT_EQ(core::read_file(folder / "dict.txt"), "the 3\ncaf\u00e9 1\ncat 1\ndog 1\n");
  const auto loaded = Tokenizer::load(folder.path());
  EXPECT_EQ(loaded->kind(), "words");
  EXPECT_EQ(loaded->fingerprint(), tokenizer.fingerprint());
  EXPECT_NE(loaded->fingerprint(), of("the cat").fingerprint());
  EXPECT_EQ(loaded->encode("the caf\u00e9"), (Ids{4, 5}));
  const auto json = nlohmann::json::parse(core::read_file(folder / "tokenizer.json"));
  EXPECT_EQ(json["model"]["vocab"]["</s>"], 2);
  EXPECT_EQ(json["model"]["vocab"]["dog"], 7);
  ByteTokenizer().save(folder.path());
  EXPECT_EQ(Tokenizer::load(folder.path())->kind(), "byte");
}

TEST(WordTokenizer, DamagedVocabulariesAreRefusedWithTheLine) {
  const TemporaryFolder folder;
  for (const auto& [text, message] : std::vector<std::pair<std::string, std::string>>{
           {"the 3\ncat\n", "line 2 is 'cat'"},
           {"the 3\n\n", "line 2"},
           {"the three\n", "line 1"},
           {"the 3x\n", "line 1"},
           {"the -3\n", "line 1"},
           {"the 99999999999999999999\n", "line 1"},
           {"the \n", "line 1"},
           {" 3\n", "word 1 is ''"},
           {"the 3\nthe 2\n", "word 2, 'the', occurs twice"},
           {"</s> 3\n", "which has its own id"},
           {"<unk> 3\n", "which has its own id"},
           {"a b 3\n", "whitespace"},
       }) {
    folder.write("dict.txt", text);
    expect_error([&] { Tokenizer::load(folder.path()); }, message);
    expect_error([&] { Tokenizer::load(folder.path()); }, "dict.txt");
  }
  folder.write("dict.txt", "the 3\ncat 1");  // the last line feed may be missing
  EXPECT_EQ(Tokenizer::load(folder.path())->vocab_size(), 6);
}

TEST(SharedData, WikiTextHasThePublishedNumberOfTokens) {
  const std::filesystem::path folder = test::shared_data() / "wikitext";
  if (!std::filesystem::is_directory(folder)) GTEST_SKIP() << "no WikiText at " << folder << " (set ALIBI_SHARED_DATA)";
  const std::string valid = core::read_file(folder / "wiki.valid.tokens"),
                    test = core::read_file(folder / "wiki.test.tokens");
  const WordTokenizer tokenizer = of(valid);
  EXPECT_EQ(encode_stream(tokenizer, {{"v", "v", valid}}).size(), 217'646u);
  EXPECT_EQ(encode_stream(tokenizer, {{"t", "t", test}}).size(), 245'569u);
  EXPECT_EQ(tokenizer.vocab_size() % 8, 0);
}

}  // namespace
}  // namespace alibi::text
