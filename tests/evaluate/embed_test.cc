#include "alibi/embed.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "alibi/language_model.h"
#include "small_config.h"
#include "testing.h"

namespace alibi::evaluation {
namespace {

LanguageModelConfig embedding_config(bool causal) {
  LanguageModelConfig config = with_position(test::small_config(1, 24, 3), Position::alibi, 16);
  config.transformer.attention.causal = causal;
  return with_vocab_size(config, 257);
}

const std::vector<std::string> kTexts = {"one", "a longer text than that", "two", "", std::string(300, 'x')};

/// [tokens + 1, 24], the first of the end of text.
std::vector<float> states_of(const LanguageModel& model, const std::string& text) {
  std::vector<int32_t> ids = model.tokenizer().encode(text);
  ids.insert(ids.begin(), 256);
  return model.hidden(Tensor::from(ids, {1, static_cast<int64_t>(ids.size())})).to_floats();
}

TEST(Embed, PoolsTheStatesOfEachText) {
  const LanguageModel model(embedding_config(false), 3);
  for (const Pooling pooling : {Pooling::mean, Pooling::first, Pooling::last}) {
    const Tensor vectors = embed(model, kTexts, {.pooling = pooling});
    ASSERT_EQ(vectors.shape(), (Shape{5, 24}));
    for (size_t i = 0; i < kTexts.size(); ++i) {
      const std::vector<float> states = states_of(model, kTexts[i]);
      const size_t tokens = kTexts[i].size();
      for (size_t c = 0; c < 24; ++c) {
        double expected = 0;
        if (pooling == Pooling::first) expected = static_cast<double>(states[c]);
        if (pooling == Pooling::last) expected = static_cast<double>(states[tokens * 24 + c]);
        for (size_t t = 1; pooling == Pooling::mean && t <= tokens; ++t) {
          expected += static_cast<double>(states[t * 24 + c]) / static_cast<double>(tokens);
        }
        if (pooling == Pooling::mean && tokens == 0) expected = static_cast<double>(states[c]);
        EXPECT_NEAR(vectors.to_floats()[i * 24 + c], expected, 1e-5) << name_of(pooling) << i;
      }
    }
  }
}

TEST(Embed, NormalizedOnesHaveLengthOneAndTheSameDirection) {
  const LanguageModel model(embedding_config(false), 3);
  const std::vector<float> plain = embed(model, kTexts).to_floats();
  const std::vector<float> unit = embed(model, kTexts, {.normalize = true, .batch_tokens = 1}).to_floats();
  for (size_t i = 0; i < kTexts.size(); ++i) {
    double squares = 0, of_unit = 0;
    for (size_t c = 0; c < 24; ++c) {
      squares += std::pow(static_cast<double>(plain[i * 24 + c]), 2);
      of_unit += std::pow(static_cast<double>(unit[i * 24 + c]), 2);
    }
    EXPECT_NEAR(of_unit, 1, 1e-5);
    for (size_t c = 0; c < 24; ++c) {
      EXPECT_NEAR(static_cast<double>(unit[i * 24 + c]), static_cast<double>(plain[i * 24 + c]) / std::sqrt(squares),
                  1e-5);
    }
  }
}

TEST(Embed, DecodersPoolWhatHasSeenTheText) {
  const LanguageModel model(embedding_config(true), 3);
  EXPECT_EQ(embed(model, kTexts, {.pooling = Pooling::last}).shape(), (Shape{5, 24}));
  test::expect_error<UsageError>([&] { embed(model, kTexts, {.pooling = Pooling::first}); }, "sees nothing");
  EXPECT_EQ(embed(model, {}).shape(), (Shape{0, 24}));
  EXPECT_EQ(pooling_from("last"), Pooling::last);
  test::expect_error<UsageError>([] { pooling_from("max"); }, "mean, first, last");
}

TEST(Embed, SameBitsAtAnyThreadCount) {
  const LanguageModel model(embedding_config(false), 3);
  test::expect_same_bits_at_any_thread_count([&] { return std::vector<Tensor>{embed(model, kTexts)}; });
}

}  // namespace
}  // namespace alibi::evaluation
