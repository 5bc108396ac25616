#include "compare/held_out.h"

#include <gtest/gtest.h>

#include <string>

#include "temporary_folder.h"

namespace alibi {
namespace {

/// The held-out text has words that the training text lacks, and characters of several bytes.
TrainingData data_with(const std::string& kind, const std::string& valid) {
  const test::TemporaryFolder folder;
  std::string train;
  for (int i = 0; i < 200; ++i) train += "the cat sat on mat " + std::to_string(i) + "\n";
  return training_data({folder.write("train.txt", train)}, {folder.write("valid.txt", valid)}, {.kind = kind});
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

}  // namespace
}  // namespace alibi
