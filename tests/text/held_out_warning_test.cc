// Training text that holds the held-out text.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "alibi/training_data.h"
#include "core/files.h"
#include "core/random.h"
#include "temporary_folder.h"

namespace alibi::text {
namespace {

std::string letters(uint64_t seed, int64_t count) {
  const core::Random random(seed);
  std::string text;
  for (uint64_t i = 0; std::ssize(text) < count; ++i) {
    text += i % 40 == 39 ? '\n' : static_cast<char>('a' + random.below(i, 20));
  }
  return text;
}

class HeldOutWarning : public ::testing::Test {
 protected:
  /// Of what is trained on (in files) and held out.
  std::string of(const std::vector<std::string>& train, const std::string& valid, const TokenizerChoice& choice = {}) {
    std::vector<std::string> files;
    for (size_t i = 0; i < train.size(); ++i) {
      files.push_back((folder_.path() / fmt::format("{}.txt", i)).string());
      core::write_file(files.back(), train[i]);
    }
    const std::string held_out = (folder_.path() / "valid.txt").string();
    core::write_file(held_out, valid);
    return held_out_warning(training_data(files, {held_out}, choice));
  }

  test::TemporaryFolder folder_;
};

TEST_F(HeldOutWarning, TellsTheShareOfTheHeldOutText) {
  const std::string valid = letters(1, 30'000), train = letters(2, 100'000);
  EXPECT_EQ(of({train}, valid), "");
  EXPECT_NE(
      of({train, "before\n" + valid + letters(3, 1000)}, valid).find("100 % of the held-out text is in the training"),
      std::string::npos);
  const std::string half = of({train + valid.substr(0, 15'000)}, valid);
  const double share = half.empty() ? 0 : std::stod(half);
  EXPECT_NEAR(share, 50, 3) << half;
  EXPECT_EQ(of({train + valid.substr(0, 6000)}, valid), "");  // a fifth: licences, headings
}

TEST_F(HeldOutWarning, WhateverTheTokens) {
  const std::string valid = letters(1, 30'000), train = letters(2, 60'000) + "\n" + valid;
  for (const TokenizerChoice& choice :
       {TokenizerChoice{.kind = "bpe", .vocab_size = 300}, TokenizerChoice{.kind = "words"}}) {
    EXPECT_NE(of({train}, valid, choice).find("% of the held-out text"), std::string::npos) << choice.kind;
  }
}

TEST_F(HeldOutWarning, ShortTextsAreNotJudged) {
  const std::string train = letters(2, 3000);
  EXPECT_EQ(of({train}, train.substr(0, 100)), "");
  EXPECT_NE(of({train}, train.substr(0, 200)), "");
}

TEST_F(HeldOutWarning, WhatOneFileRepeatsIsFoundInItsOwnSplit) {
  const std::string file = (folder_.path() / "book.txt").string(), part = letters(4, 20'000);
  core::write_file(file, part + part);
  EXPECT_NE(held_out_warning(training_data({file}, {})), "");
  core::write_file(file, part);
  EXPECT_EQ(held_out_warning(training_data({file}, {})), "");
}

}  // namespace
}  // namespace alibi::text
