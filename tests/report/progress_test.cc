#include "report/progress.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

namespace alibi::report {
namespace {

/// A stream whose text can be read, and a clock that is set by hand.
class ProgressTest : public ::testing::Test {
 protected:
  void SetUp() override { stream_ = open_memstream(&buffer_, &size_); }
  void TearDown() override {
    std::fclose(stream_);
    std::free(buffer_);
  }
  ProgressOptions options() {
    ProgressOptions options;
    options.even_without_terminal = true;
    options.width = 60;
    options.clock = [this] { return now_; };
    return options;
  }
  std::string written() {
    std::fflush(stream_);
    return {buffer_, size_};
  }

  std::FILE* stream_ = nullptr;
  char* buffer_ = nullptr;
  size_t size_ = 0;
  double now_ = 100;
};

TEST_F(ProgressTest, ShowsFieldsAndTimeLeft) {
  Progress progress(stream_, options());
  progress.begin("train alibi");
  now_ += 10;
  progress.update(0.25, "loss 2.345");
  EXPECT_EQ(written(), "\rtrain alibi  25%  loss 2.345  30 s left\x1b[K");
}

TEST_F(ProgressTest, WithoutATerminalThereIsALineNowAndThen) {
  std::vector<std::string> lines;
  ProgressOptions plain = options();
  plain.even_without_terminal = false;
  plain.line = [&](std::string_view line) { lines.emplace_back(line); };
  {
    Progress progress(stream_, plain);
    progress.begin("evaluate");
    for (int second = 0; second < 9; ++second, ++now_) progress.update(second / 100.0);
    progress.update(1);  // quick work says nothing, also at its end
    EXPECT_TRUE(lines.empty());
    progress.begin("evaluate again");  // much work in small pieces does
    for (int second = 9; second < 40; ++second, ++now_) progress.update((second - 9) / 100.0, "at length 7");
  }
  EXPECT_EQ(lines, (std::vector<std::string>{"evaluate again   1%  at length 7  1m 39s left",
                                             "evaluate again  11%  at length 7  1m 29s left",
                                             "evaluate again  21%  at length 7  1m 19s left"}));
  EXPECT_EQ(written(), "");
}

TEST_F(ProgressTest, WritesAtMostTenTimesASecond) {
  Progress progress(stream_, options());
  progress.begin("x");
  for (int i = 0; i < 1000; ++i, now_ += 0.001) progress.update(i / 1000.0);
  const std::string text = written();
  const auto lines = std::count(text.begin(), text.end(), '\r');
  EXPECT_GE(lines, 9);
  EXPECT_LE(lines, 11);
}

TEST_F(ProgressTest, NeverSays100PercentTooEarlyNorWraps) {
  Progress progress(stream_, options());
  progress.begin("x");
  progress.update(0.9999, std::string(500, 'y'));
  const std::string text = written();
  EXPECT_NE(text.find(" 99%"), std::string::npos);
  EXPECT_EQ(text.size(), 1 + 59 + 3u);  // "\r", one column less than the width, "\x1b[K"
  progress.update(1);
  EXPECT_NE(written().find("100%"), std::string::npos);
}

TEST_F(ProgressTest, ClearRemovesTheLineOnce) {
  {
    Progress progress(stream_, options());
    progress.clear();
    EXPECT_EQ(written(), "");
    progress.begin("x");
    progress.update(0.5);
    progress.clear();
  }
  const std::string text = written();
  EXPECT_EQ(text.substr(text.size() - 4), "\r\x1b[K");
  EXPECT_EQ(std::count(text.begin(), text.end(), '\r'), 2);
}

TEST_F(ProgressTest, IsSilentWithoutATerminal) {
  std::FILE* file = std::tmpfile();
  {
    Progress progress(file);
    EXPECT_FALSE(progress.active());
    progress.begin("x");
    progress.update(0.5, "y");
  }
  EXPECT_EQ(std::ftell(file), 0);
  std::fclose(file);
  Progress none(nullptr);
  none.update(0.5);
}

}  // namespace
}  // namespace alibi::report
