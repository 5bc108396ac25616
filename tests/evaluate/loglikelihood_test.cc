#include "alibi/loglikelihood.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numbers>
#include <numeric>
#include <string>
#include <vector>

#include "alibi/error.h"
#include "core/random.h"
#include "small_config.h"
#include "testing.h"

namespace alibi::evaluation {
namespace {

LanguageModel model_of(Position position = Position::alibi) {
  return LanguageModel(with_position(test::small_config(), position, 64), 1);
}

std::vector<int32_t> random_tokens(int64_t count, uint64_t seed) {
  return test::random_ids({count}, seed, 256).to_ints();
}

/// log p(target | ids) and whether the target has the largest logit: in float64, from the logits of the ids alone.
struct Defined {
  double logprob;
  bool greedy;
};
Defined by_definition(const LanguageModel& model, std::span<const int32_t> ids, int32_t target) {
  const std::vector<double> logits = test::doubles(model.next_logits(Tensor::from(ids, {1, std::ssize(ids)})));
  const double most = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const double logit : logits) sum += std::exp(logit - most);
  const double logit = logits[static_cast<size_t>(target)];
  return {logit - most - std::log(sum), logit == most};
}

TEST(Loglikelihoods, AreTheDefinitionOneTargetAtATime) {
  const core::Random random(5);
  for (const Position position : {Position::alibi, Position::rotary, Position::learned}) {
    const LanguageModel model = model_of(position);
    std::vector<Continuation> texts;
    for (uint64_t i = 0; i < 12; ++i) {
      const auto count = static_cast<int64_t>(2 + random.below(2 * i, 60));
      texts.push_back({random_tokens(count, i),
                       static_cast<int64_t>(1 + random.below(2 * i + 1, static_cast<uint64_t>(count - 1)))});
    }
    // One that the model would generate, so that both answers occur.
    texts.push_back({random_tokens(9, 77), 3});
    std::vector<int32_t>& ids = texts.back().ids;
    for (size_t at = 6; at < 9; ++at) {
      const std::vector<float> logits =
          model.next_logits(Tensor::from(std::span(ids).first(at), {1, static_cast<int64_t>(at)})).to_floats();
      ids[at] = static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    }
    int64_t progress = 0;
    const std::vector<Loglikelihood> found = loglikelihoods(
        model, texts, {.batch_tokens = 100, .on_progress = [&](int64_t done, int64_t) { progress = done; }});
    ASSERT_EQ(found.size(), texts.size());
    int64_t targets = 0;
    for (size_t i = 0; i < texts.size(); ++i) {
      Loglikelihood expected;
      const auto& [tokens, count] = texts[i];
      for (size_t at = tokens.size() - static_cast<size_t>(count); at < tokens.size(); ++at) {
        const Defined target = by_definition(model, std::span(tokens).first(at), tokens[at]);
        expected.sum += target.logprob;
        expected.squares += target.logprob * target.logprob;
        expected.greedy = expected.greedy && target.greedy;
      }
      targets += count;
      EXPECT_TRUE(std::abs(found[i].sum - expected.sum) <= 1e-5 * std::abs(expected.sum)) << name_of(position) << i;
      EXPECT_TRUE(std::abs(found[i].squares - expected.squares) <= 1e-5 * expected.squares) << name_of(position) << i;
      EXPECT_EQ(found[i].greedy, expected.greedy) << name_of(position) << i;
    }
    EXPECT_TRUE(found.back().greedy);
    EXPECT_EQ(progress, targets);
  }
}

TEST(Loglikelihoods, RefuseWhatCannotBeScored) {
  const LanguageModel model = model_of();
  const auto score = [&](Continuation text) { return loglikelihoods(model, std::vector{std::move(text)}); };
  EXPECT_THROW(score({{1}, 1}), Error);
  EXPECT_THROW(score({{1, 2}, 2}), Error);
  EXPECT_THROW(score({{1, 2}, 0}), Error);
  EXPECT_THROW(score({{1, 257}, 1}), Error);
  EXPECT_THROW(score({{-1, 2}, 1}), Error);
  EXPECT_TRUE(loglikelihoods(model, {}).empty());
}

// The example in the documentation of lm-evaluation-harness (LM.loglikelihood_rolling): a context of 4, tokens 0 to 9.
TEST(RollingWindows, AreThoseOfTheHarness) {
  std::vector<int32_t> tokens(10);
  std::iota(tokens.begin(), tokens.end(), 0);
  const std::vector<Continuation> windows = rolling_windows(tokens, 99, 4);
  const std::vector<std::vector<int32_t>> ids = {{99, 0, 1, 2, 3}, {3, 4, 5, 6, 7}, {5, 6, 7, 8, 9}};
  const std::vector<int64_t> targets = {4, 4, 2};
  ASSERT_EQ(windows.size(), 3u);
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(windows[i].ids, ids[i]);
    EXPECT_EQ(windows[i].targets, targets[i]);
  }
  EXPECT_TRUE(rolling_windows({}, 99, 4).empty());
  EXPECT_EQ(rolling_windows(std::span(tokens).first(1), 99, 1).size(), 1u);
  EXPECT_THROW(rolling_windows(tokens, 99, 0), UsageError);
}

/// loglikelihood_rolling as its documentation states it: each token from the tokens before it in its window.
double rolling_nll(const LanguageModel& model, const std::vector<int32_t>& tokens, int32_t prefix, int64_t length) {
  std::vector<int32_t> all = {prefix};
  all.insert(all.end(), tokens.begin(), tokens.end());
  double nll = 0;
  const auto count = std::ssize(tokens);
  for (int64_t t = 0; t < count; ++t) {
    const int64_t end = std::min(count, (t / length + 1) * length);  // of its window's targets
    const int64_t begin = std::max<int64_t>(0, end - length);        // the window's first input in `all`
    nll -= by_definition(model, std::span(all).subspan(static_cast<size_t>(begin), static_cast<size_t>(t + 1 - begin)),
                         tokens[static_cast<size_t>(t)])
               .logprob;
  }
  return nll;
}

TEST(EvaluateRolling, IsTheDefinitionForEachDocument) {
  const LanguageModel model = model_of();
  const std::vector<std::string> documents = {"a short one", "two  words\n and a line", "\u00e9t\u00e9\u3000x", "z"};
  for (const int64_t length : {1, 3, 8, 64}) {
    const RollingEvaluation found = evaluate_rolling(model, documents, {.length = length});
    double nll = 0;
    int64_t bytes = 0;
    for (const std::string& document : documents) {
      bytes += std::ssize(document);
      nll += rolling_nll(model, model.tokenizer().encode(document), model.tokenizer().end_of_text(), length);
    }
    EXPECT_TRUE(std::abs(found.nll_sum - nll) <= 1e-5 * nll) << length << ": " << found.nll_sum << " " << nll;
    EXPECT_EQ(found.bytes, bytes);
    EXPECT_EQ(found.tokens, bytes);
    EXPECT_EQ(found.documents, 4);
    EXPECT_EQ(found.words, 3 + 5 + 2 + 1);
    EXPECT_TRUE(std::abs(found.word_perplexity() / std::exp(nll / 11) - 1) <= 1e-4);
    EXPECT_TRUE(std::abs(found.bits_per_byte() - nll / std::numbers::ln2 / static_cast<double>(bytes)) <= 1e-4);
  }
  EXPECT_THROW(evaluate_rolling(model, std::vector<std::string>{""}), Error);
  const std::vector<std::string> one = {"ab"};
  EXPECT_NE(evaluate_rolling(model, one, {.prefix = 65}).nll_sum, evaluate_rolling(model, one).nll_sum);
}

TEST(EvaluateChunks, ScoresTheSecondHalfOfEachChunk) {
  const LanguageModel model = model_of();
  const std::string text = "The quick brown fox jumps over the lazy dog.\n";
  std::vector<int32_t> tokens = {model.tokenizer().end_of_text()};
  for (const char c : text.substr(0, text.size() - 1)) tokens.push_back(static_cast<unsigned char>(c));
  for (const int64_t length : {3, 4, 9, 16, 45}) {
    const ChunkEvaluation found = evaluate_chunks(model, text, {.length = length});
    double nll = 0, squares = 0;
    int64_t targets = 0, chunks = 0;
    for (int64_t start = 0; start + length <= std::ssize(tokens); start += length, ++chunks) {
      std::vector<int32_t> chunk(tokens.begin() + start, tokens.begin() + start + length);
      chunk.front() = model.tokenizer().end_of_text();
      for (auto at = static_cast<size_t>(length / 2 + 1); at < chunk.size(); ++at, ++targets) {
        const double loss = -by_definition(model, std::span(chunk).first(at), chunk[at]).logprob;
        nll += loss;
        squares += loss * loss;
      }
    }
    EXPECT_EQ(found.chunks, chunks);
    EXPECT_EQ(found.tokens, targets);
    EXPECT_TRUE(std::abs(found.nll_sum - nll) <= 1e-5 * nll) << length << ": " << found.nll_sum << " " << nll;
    const double count = static_cast<double>(targets), mean = nll / count;
    const double error = std::sqrt((squares / count - mean * mean) / (count - 1)) * std::exp(mean);
    EXPECT_TRUE(std::abs(found.perplexity_error() - error) <= 1e-3 * error) << length;
  }
  EXPECT_THROW(evaluate_chunks(model, text, {.length = 2}), UsageError);
  EXPECT_THROW(evaluate_chunks(model, text, {.length = 46}), Error);
}

TEST(EvaluateRolling, HasTheSameBitsAtAnyNumberOfThreads) {
  const LanguageModel model = model_of();
  const std::vector<std::string> documents = {std::string(300, 'q') + " some text", "more of it"};
  const int before = threads();
  set_threads(1);
  const double one = evaluate_rolling(model, documents, {.length = 64}).nll_sum;
  set_threads(3);
  EXPECT_EQ(evaluate_rolling(model, documents, {.length = 64}).nll_sum, one);
  set_threads(before);
}

}  // namespace
}  // namespace alibi::evaluation
