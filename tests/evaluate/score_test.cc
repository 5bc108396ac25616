// Tokens that come in parts have the losses that windows over the whole text give.
#include "alibi/score.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "alibi/error.h"
#include "alibi/evaluate.h"
#include "small_config.h"
#include "testing.h"

namespace alibi::evaluation {
namespace {

LanguageModel scoring_model(Position position = Position::alibi) {
  return LanguageModel(with_position(test::small_config(), position, 64), 1);
}

std::vector<float> in_parts(const LanguageModel& model, std::span<const int32_t> tokens, int64_t length, size_t part) {
  Scorer scorer(model, {.context_length = length});
  std::vector<float> nll;
  for (; !tokens.empty(); tokens = tokens.subspan(std::min(part, tokens.size()))) {
    const std::vector<float> more = scorer.score(tokens.first(std::min(part, tokens.size())));
    nll.insert(nll.end(), more.begin(), more.end());
  }
  return nll;
}

TEST(Scorer, GivesWhatOverlappingWindowsGive) {
  const Tensor text = test::random_ids({200}, 1, 256);
  const std::span<const int32_t> tokens(text.data<int32_t>(), 200);
  for (const Position position : {Position::alibi, Position::rotary, Position::learned}) {
    const LanguageModel model = scoring_model(position);
    for (const int64_t length : {1, 8, 64}) {
      const Evaluation expected =
          evaluate(model, tokens, {.length = length, .stride = std::max<int64_t>(1, length / 2)});
      const std::vector<float> whole = in_parts(model, tokens, length, 200);
      ASSERT_EQ(whole.size(), 200u);
      const double sum = std::accumulate(whole.begin(), whole.end(), 0.0);
      EXPECT_TRUE(std::abs(sum - expected.nll_sum) <= 1e-5 * expected.nll_sum) << name_of(position) << " " << length;
      for (const size_t part : {3, 90}) {
        EXPECT_TRUE(test::max_abs_diff(in_parts(model, tokens, length, part), whole) <= 1e-4) << part;
      }
    }
  }
}

TEST(Scorer, HoldsNoMoreForAnEndlessText) {
  const LanguageModel model = scoring_model();
  Scorer scorer(model);
  EXPECT_EQ(scorer.length(), 64);
  const Tensor text = test::random_ids({1024}, 1, 256);
  const std::span<const int32_t> tokens(text.data<int32_t>(), 1024);
  scorer.score(tokens);
  const int64_t before = tensor_bytes();
  for (int i = 0; i < 5; ++i) scorer.score(tokens);
  EXPECT_EQ(tensor_bytes(), before);
}

TEST(Scorer, WithALimitedContextOneTextHasNoEnd) {
  const LanguageModel model = scoring_model();
  const Tensor text = test::random_ids({500}, 1, 256);
  const std::span<const int32_t> tokens(text.data<int32_t>(), 500);
  Scorer scorer(model, {.context = {.eviction_tolerance = 1e-6}});
  EXPECT_GT(scorer.length(), 1 << 20);
  std::vector<float> nll;
  for (size_t begin = 0; begin < 500; begin += 100) {
    const std::vector<float> more = scorer.score(tokens.subspan(begin, 100));
    nll.insert(nll.end(), more.begin(), more.end());
  }
  const Evaluation window = evaluate(model, tokens, {.length = 500});
  EXPECT_TRUE(test::max_abs_diff(nll, window.position_nll) <= 1e-3);
}

TEST(Scorer, RefusesWhatTheModelCannotDo) {
  const LanguageModel model = scoring_model(Position::learned);
  test::expect_error([&] { Scorer scorer(model, {.context_length = 65}); },
                     "learned positions end at 64, but the length is 65");
  test::expect_error<UsageError>([&] { Scorer scorer(model, {.context_length = -1}); }, "the length is -1");
}

}  // namespace
}  // namespace alibi::evaluation
