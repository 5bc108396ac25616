#include "compare/held_out.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <string>
#include <vector>

#include "evaluate/checks.h"
#include "temporary_folder.h"

namespace alibi::comparison {
namespace {

/// The held-out text has words that the training text lacks, and characters of several bytes.
TrainingData data_with(const std::string& kind, const std::string& valid) {
  const test::TemporaryFolder folder;
  std::string train;
  for (int i = 0; i < 200; ++i) train += "the cat sat on mat " + std::to_string(i) + "\n";
  return training_data({folder.write("train.txt", train)}, {folder.write("valid.txt", valid)}, {.kind = kind});
}

int64_t bytes_of_prefix(const TrainingData& data, size_t tokens) {
  return bytes_of(*data.tokenizer, data.valid.tokens, data.valid_bytes, {{0, static_cast<int64_t>(tokens)}});
}

TEST(HeldOut, BytesOfAPrefixAreThoseOfItsText) {
  const std::string valid = "the cat sät on\nthe dog 7\n";
  for (const char* kind : {"byte", "bpe", "unigram"}) {
    const TrainingData data = data_with(kind, valid);
    ASSERT_EQ(data.valid_bytes, static_cast<int64_t>(valid.size()));
    for (size_t n = 0; n < data.valid.tokens.size(); ++n) {
      const std::string text = data.tokenizer->decode(data.valid.tokens.first(n));
      EXPECT_TRUE(valid.starts_with(text)) << kind;
      EXPECT_EQ(bytes_of_prefix(data, n), static_cast<int64_t>(text.size())) << kind;
    }
    EXPECT_EQ(bytes_of_prefix(data, data.valid.tokens.size()), data.valid_bytes);
  }
}

TEST(HeldOut, BytesOfWordsAreInProportion) {
  // Decodes to "the <unk>\nthe <unk>\n": two equal halves of 10 bytes, where the text has 32 and 28.
  const TrainingData data = data_with("words", "the    extraordinarily-long-one\nthe other-extraordinary-one\n");
  ASSERT_EQ(data.valid.tokens.size(), 6u);
  ASSERT_EQ(data.valid_bytes, 60);
  EXPECT_EQ(bytes_of_prefix(data, 3), 30);
  EXPECT_EQ(bytes_of_prefix(data, 6), 60);
}

TEST(HeldOut, BlocksAreSpreadEvenlyAndHoldWhatWasWanted) {
  for (const auto& [stream, wanted, longest] : std::vector<std::array<int64_t, 3>>{
           {1000, 100, 10}, {1000, 95, 10}, {1000, 1000, 64}, {50, 1000, 8}, {1000, 7, 10}, {64, 64, 64}}) {
    const std::vector<Segment> blocks = evaluation::spread_blocks(stream, wanted, longest);
    int64_t at = 0, most = 0, sum = 0;
    for (const Segment& block : blocks) {
      most = std::max(most, block.begin - at);
      EXPECT_GE(block.begin, at);
      EXPECT_LE(block.size(), longest);
      sum += block.size();
      at = block.end;
    }
    EXPECT_LE(at, stream);
    EXPECT_EQ(sum, std::min(stream, wanted));
    // No stretch is left out that is longer than its share of the rest, and half of one at each end.
    const int64_t room = stream - sum, share = room / static_cast<int64_t>(blocks.size());
    EXPECT_LE(most, share + 1);
    EXPECT_LE(std::abs(blocks.front().begin - (stream - at)), 1);
  }
}

TEST(HeldOut, ContextsHaveTheirTextAndTheSameTargets) {
  const HeldOutPlan plan = plan_held_out(10000, 4096, 96, 1024);
  EXPECT_EQ(plan.contexts, (std::vector<int64_t>{16, 32, 64, 96, 128, 256, 512, 1024}));
  ASSERT_EQ(plan.groups.size(), 8u);
  int64_t at = 1024;  // every group has the longest context before it
  for (const Segment& group : plan.groups) {
    EXPECT_GE(group.begin, at);
    EXPECT_EQ(group.size(), 16);
    at = group.end;
  }
  EXPECT_LE(at, 10000);
  EXPECT_EQ(plan_held_out(100, 50, 8, 32).contexts, (std::vector<int64_t>{16, 32}));
  EXPECT_TRUE(plan_held_out(20, 20, 8, 16).groups.empty());  // too short for any
}

TEST(HeldOut, FilesAreNamedWithWhatWasScoredOfThem) {
  const test::TemporaryFolder folder;
  const std::string a = folder.write("a.txt", std::string(1000, 'a')),
                    b = folder.write("b.txt", std::string(3000, 'b'));
  const TrainingData data = training_data({folder.write("train.txt", std::string(500, 't'))}, {a, b});
  ASSERT_EQ(data.valid_parts.size(), 2u);
  EXPECT_EQ(data.valid_parts[0].tokens, 1001);  // and the end of the text
  EXPECT_EQ(data.valid_parts[1].tokens, 3001);
  const HeldOut all = describe(data, {{0, 4002}});
  EXPECT_EQ(all.bytes, 4000);
  EXPECT_EQ(all.files[0].scored_bytes, 1000);
  EXPECT_EQ(all.files[1].scored_bytes, 3000);
  const HeldOut some = describe(data, {{900, 1100}, {2000, 2050}});
  EXPECT_EQ(some.bytes, 249);  // an end of text is no byte
  EXPECT_EQ(some.files[0].name, "a.txt");
  EXPECT_EQ(some.files[0].scored_bytes, 100);
  EXPECT_EQ(some.files[1].scored_bytes, 99 + 50);
  EXPECT_EQ(some.block_tokens, (std::vector<int64_t>{200, 50}));
}

TEST(HeldOut, TheBeginningEndsWithItsDocumentAndInAWholeCharacter) {
  const ByteTokenizer bytes;
  const std::vector<int32_t> stream{'s', 0xC3, 0xA4, 't', 256, 'x'};
  EXPECT_EQ(beginning_of(bytes, stream, 1), "s");
  EXPECT_EQ(beginning_of(bytes, stream, 2), "s");
  EXPECT_EQ(beginning_of(bytes, stream, 3), "s\xC3\xA4");
  EXPECT_EQ(beginning_of(bytes, stream, 100), "s\xC3\xA4t");
  const TrainingData words = data_with("words", "the cat\nsat on\n");  // where a line's end is no document's
  EXPECT_EQ(beginning_of(*words.tokenizer, words.valid.tokens, 4), "the cat\nsat");
}

TEST(CompareDefaults, LengthsAreMultiplesOfTheTrainingLengthRoundedToTokens) {
  EXPECT_EQ(lengths_to_measure(128), (std::vector<int64_t>{128, 160, 192, 256, 384, 512, 768, 1024, 2048}));
  EXPECT_EQ(lengths_to_measure(10), (std::vector<int64_t>{10, 13, 15, 20, 30, 40, 60, 80, 160}));
  EXPECT_EQ(lengths_to_measure(1), (std::vector<int64_t>{1, 2, 3, 4, 6, 8, 16})) << "none twice";
}

TEST(CompareDefaults, SixteenBlocksOfTheLongestLengthAreScored) {
  EXPECT_EQ(tokens_to_score("tiny", 2048), 65536);
  EXPECT_EQ(tokens_to_score("tiny", 20000), 320000);
  EXPECT_EQ(tokens_to_score("small", 2048), 262144);
  EXPECT_EQ(tokens_to_score("wikitext103", 2048), 262144);
  EXPECT_EQ(tokens_to_score("base", 2048), 1048576);
  EXPECT_EQ(tokens_to_score("base", 300000), 4800000);
}

}  // namespace
}  // namespace alibi::comparison
