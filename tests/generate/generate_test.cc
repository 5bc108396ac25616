#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <memory>
#include <set>

#include "alibi/error.h"
#include "alibi/language_model.h"
#include "generate/sampling.h"
#include "generate/utf8.h"
#include "testing.h"
#include "text/word_tokenizer.h"

namespace alibi {
namespace {

LanguageModel small_model(Position position = Position::alibi) {
  LanguageModelConfig config = preset("tiny");
  config.transformer.layers = 2;
  config.transformer.d_model = 32;
  config.transformer.heads = 4;
  return LanguageModel(with_position(config, position, 16), 1);
}

TEST(Sampling, FollowsTheSoftmaxAtItsTemperature) {
  const std::vector<float> logits{0.0f, 1.0f, 2.0f, -1.0f};
  for (const double temperature : {0.5, 1.0, 2.0}) {
    GenerateOptions options;
    options.temperature = temperature;
    std::map<int32_t, int> counts;
    const int draws = 20000;
    for (int n = 0; n < draws; ++n) ++counts[sample_token(logits, options, Random(1), static_cast<uint64_t>(n), -1)];
    double total = 0;
    for (const float logit : logits) total += std::exp(static_cast<double>(logit) / temperature);
    for (int32_t token = 0; token < 4; ++token) {
      const double expected = std::exp(static_cast<double>(logits[static_cast<size_t>(token)]) / temperature) / total;
      EXPECT_NEAR(counts[token] / static_cast<double>(draws), expected, 0.015);
    }
  }
}

TEST(Sampling, LimitsHold) {
  const std::vector<float> logits{0.0f, 1.0f, 2.0f, 1.5f};
  const auto drawn = [&](const GenerateOptions& options, int32_t banned = -1) {
    std::vector<int32_t> tokens;
    for (uint64_t n = 0; n < 500; ++n) tokens.push_back(sample_token(logits, options, Random(1), n, banned));
    std::sort(tokens.begin(), tokens.end());
    tokens.erase(std::unique(tokens.begin(), tokens.end()), tokens.end());
    return tokens;
  };
  EXPECT_EQ(drawn({.temperature = 0}), (std::vector<int32_t>{2}));
  EXPECT_EQ(drawn({.temperature = 0}, 2), (std::vector<int32_t>{3}));
  EXPECT_EQ(drawn({.top_k = 2}), (std::vector<int32_t>{2, 3}));
  EXPECT_EQ(drawn({.top_p = 0.1}), (std::vector<int32_t>{2}));
  EXPECT_EQ(drawn({}), (std::vector<int32_t>{0, 1, 2, 3}));
  EXPECT_EQ(drawn({}, 1), (std::vector<int32_t>{0, 2, 3}));
}

TEST(Sampling, TopPKeepsNoMoreThanItNeeds) {
  // Equal logits: 0.5 of two is one of them, the lower id; 0.5 of four are two.
  const auto drawn = [](const std::vector<float>& logits) {
    std::set<int32_t> tokens;
    for (uint64_t n = 0; n < 200; ++n) tokens.insert(sample_token(logits, {.top_p = 0.5}, Random(1), n, -1));
    return tokens;
  };
  EXPECT_EQ(drawn({1, 1}), std::set<int32_t>{0});
  EXPECT_EQ(drawn({2, 2, 2, 2}), (std::set<int32_t>{0, 1}));
}

TEST(Generate, GreedyTextIsTheMostLikelyTokenOfTheLogits) {
  const LanguageModel model = small_model();
  const std::string prompt = "Call me";
  const std::string text = model.generate(prompt, {.max_tokens = 24, .temperature = 0});
  ASSERT_EQ(text.size(), 24u);
  std::vector<int32_t> ids{256};
  for (const char c : prompt + text) ids.push_back(static_cast<unsigned char>(c));
  const int64_t length = static_cast<int64_t>(ids.size());
  const std::vector<float> logits = model.logits(Tensor::from(std::span<const int32_t>(ids), {1, length})).to_floats();
  for (size_t i = 0; i < text.size(); ++i) {
    const auto row = logits.begin() + static_cast<int64_t>((prompt.size() + i) * 257);
    EXPECT_EQ(std::max_element(row, row + 256) - row, static_cast<unsigned char>(text[i])) << i;
  }
}

TEST(Generate, RunsFarPastTheTrainingLengthAndRepeatsWithItsSeed) {
  const LanguageModel model = small_model();
  const std::string a = model.generate("x", {.max_tokens = 100, .seed = 5});
  EXPECT_EQ(a.size(), 100u);
  EXPECT_EQ(model.generate("x", {.max_tokens = 100, .seed = 5}), a);
  EXPECT_NE(model.generate("x", {.max_tokens = 100, .seed = 6}), a);
  EXPECT_THROW(small_model(Position::learned).generate("x", {.max_tokens = 100}), Error);
  EXPECT_EQ(model.generate("x", {.max_tokens = 0}), "");
}

TEST(Generate, StreamsWholeCharactersAndStopsWhenAsked) {
  const LanguageModel model = small_model();
  GenerateOptions options{.max_tokens = 60, .seed = 2};
  std::string streamed;
  options.on_text = [&](std::string_view piece) {
    streamed += piece;
    return true;
  };
  EXPECT_EQ(model.generate("x", options), streamed);
  int calls = 0;
  options.on_text = [&](std::string_view) { return ++calls < 3; };
  model.generate("x", options);
  EXPECT_EQ(calls, 3);
}

TEST(Generate, ModelsOfWordsEndTheirLines) {
  // Their end of text is the end of a line, which neither stops them nor is kept from them.
  LanguageModelConfig config = small_model().config();
  const auto words = std::make_shared<WordTokenizer>(std::vector<WordCount>{{"a", 3}, {"b", 2}, {"c", 1}, {"d", 1}});
  config.vocab_size = words->vocab_size();
  const LanguageModel model(config, 1, words);
  for (const bool stop : {true, false}) {
    const std::string text = model.generate("a b", {.max_tokens = 60, .seed = 1, .stop_at_end_of_text = stop});
    EXPECT_NE(text.find('\n'), std::string::npos) << text;
    // Words stay apart, also where a token between them stands for no text.
    const std::string trimmed = text.substr(text.find_first_not_of(' '));
    EXPECT_EQ(words->decode(words->encode(text)), trimmed);
  }
}

TEST(Generate, BadOptionsAreUsageErrors) {
  const LanguageModel model = small_model();
  EXPECT_THROW(model.generate("x", {.temperature = -1}), UsageError);
  EXPECT_THROW(model.generate("x", {.top_p = 0}), UsageError);
  EXPECT_THROW(model.generate("x", {.max_tokens = -1}), UsageError);
}

TEST(Utf8, WholeCharactersEndBeforeAnUnfinishedOne) {
  EXPECT_EQ(whole_characters("abc", 0), 3u);
  EXPECT_EQ(whole_characters("a\xC3", 0), 1u);
  EXPECT_EQ(whole_characters("a\xC3\xA9", 0), 3u);
  EXPECT_EQ(whole_characters("a\xE2\x82", 0), 1u);
  EXPECT_EQ(whole_characters("a\xF0\x9F\x98", 0), 1u);
  EXPECT_EQ(whole_characters("\x80\x80\x80\x80", 0), 4u);  // never a character: shown as it is
  EXPECT_EQ(whole_characters("", 0), 0u);
}

}  // namespace
}  // namespace alibi
