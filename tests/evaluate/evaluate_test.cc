#include "alibi/evaluate.h"

#include <gtest/gtest.h>

#include <numeric>

#include "alibi/error.h"
#include "small_config.h"
#include "testing.h"

namespace alibi::evaluation {
namespace {

LanguageModel small_model(Position position = Position::alibi, int64_t length = 64) {
  return LanguageModel(with_position(test::small_config(), position, length), 1);
}

std::vector<int32_t> stream(int64_t count) { return test::random_ids({count}, 3, 256).to_ints(); }

/// The inputs that target t sees: in block b = t / stride, at offset o, min(C, b * stride) + o + 1, with C = length -
/// stride.
int64_t seen_by_definition(int64_t t, int64_t length, int64_t stride) {
  return std::min(length - stride, t / stride * stride) + t % stride + 1;
}

/// The definition, one target at a time.
std::vector<double> nll_by_definition(const LanguageModel& model, const std::vector<int32_t>& tokens, int64_t length,
                                      int64_t stride) {
  std::vector<double> result;
  for (int64_t t = 0; t < static_cast<int64_t>(tokens.size()); ++t) {
    const int64_t seen = seen_by_definition(t, length, stride);
    std::vector<int32_t> ids, targets(static_cast<size_t>(seen), -1);
    for (int64_t i = t - seen; i < t; ++i) {
      ids.push_back(i < 0 ? model.tokenizer().end_of_text() : tokens[static_cast<size_t>(i)]);
    }
    targets.back() = tokens[static_cast<size_t>(t)];
    result.push_back(static_cast<double>(model
                                             .nll(Tensor::from(std::span<const int32_t>(ids), {1, seen}),
                                                  Tensor::from(std::span<const int32_t>(targets), {1, seen}))
                                             .back()));
  }
  return result;
}

TEST(Evaluate, IsTheDefinitionForEveryLengthAndStride) {
  const std::vector<int32_t> tokens = stream(47);
  for (const Position position : {Position::alibi, Position::sinusoidal, Position::t5}) {
    const LanguageModel model = small_model(position);
    for (const auto& [length, stride] : std::vector<std::pair<int64_t, int64_t>>{
             {1, 1}, {8, 8}, {8, 1}, {8, 3}, {8, 5}, {10, 5}, {46, 7}, {47, 47}, {64, 64}, {64, 9}}) {
      const Evaluation found = evaluate(model, tokens, {.length = length, .stride = stride, .batch_tokens = 24});
      const std::vector<double> expected = nll_by_definition(model, tokens, length, stride);
      const double sum = std::accumulate(expected.begin(), expected.end(), 0.0);
      EXPECT_TRUE(std::abs(found.nll_sum - sum) <= 1e-4 * sum)
          << length << " " << stride << ": " << found.nll_sum << " " << sum;
      EXPECT_EQ(found.tokens, 47);
      // A target's position is the number of inputs that it sees before its own.
      std::vector<double> position_nll(found.position_nll.size(), 0.0);
      std::vector<int64_t> position_tokens(found.position_tokens.size(), 0);
      for (int64_t t = 0; t < 47; ++t) {
        const auto at = static_cast<size_t>(seen_by_definition(t, length, stride) - 1);
        ASSERT_LT(at, position_nll.size());
        position_nll[at] += expected[static_cast<size_t>(t)];
        ++position_tokens[at];
      }
      EXPECT_EQ(found.position_tokens, position_tokens) << length << " " << stride;
      EXPECT_TRUE(test::relative_diff(found.position_nll, position_nll) <= 1e-4) << length << " " << stride;
    }
  }
}

TEST(Evaluate, SegmentsAreScoredWithTheTextBeforeThem) {
  const std::vector<int32_t> tokens = stream(60);
  const LanguageModel model = small_model();
  const std::vector<Segment> segments{{3, 10}, {10, 11}, {20, 41}, {55, 60}};
  for (const auto& [length, stride] :
       std::vector<std::pair<int64_t, int64_t>>{{8, 8}, {8, 1}, {8, 3}, {16, 5}, {64, 9}, {64, 64}}) {
    const Evaluation found =
        evaluate(model, tokens, {.length = length, .stride = stride, .batch_tokens = 24, .segments = segments});
    EXPECT_EQ(found.tokens, 7 + 1 + 21 + 5);
    double all = 0;
    for (size_t i = 0; i < segments.size(); ++i) {
      // Target t of the segment sees what it would see in a stream that begins that much earlier: all windows are
      // cut from the segment's beginning.
      double expected = 0;
      for (int64_t t = segments[i].begin; t < segments[i].end; ++t) {
        const int64_t offset = t - segments[i].begin, window = segments[i].begin + offset / stride * stride;
        const int64_t begin = std::max<int64_t>(0, window - (length - stride)), seen = t - begin + 1;
        std::vector<int32_t> ids, targets(static_cast<size_t>(seen), -1);
        for (int64_t at = begin; at <= t; ++at) {
          ids.push_back(at == 0 ? model.tokenizer().end_of_text() : tokens[static_cast<size_t>(at - 1)]);
        }
        targets.back() = tokens[static_cast<size_t>(t)];
        const std::vector<float> nll = model.nll(Tensor::from(std::span<const int32_t>(ids), {1, seen}),
                                                 Tensor::from(std::span<const int32_t>(targets), {1, seen}));
        expected += static_cast<double>(nll.back());
      }
      EXPECT_TRUE(std::abs(found.segment_nll[i] - expected) <= 1e-4 * expected) << length << " " << stride << " " << i;
      all += found.segment_nll[i];
    }
    EXPECT_TRUE(std::abs(found.nll_sum - all) <= 1e-9 * all);
  }
  const auto refused = [&](const std::vector<Segment>& wrong) {
    test::expect_error<UsageError>([&] { evaluate(model, tokens, {.segments = wrong}); },
                                   "expected rising segments that start at");
  };
  refused({{3, 10}, {9, 12}});
  refused({{3, 3}});
  refused({{50, 61}});
  refused({{-1, 5}});
}

TEST(Evaluate, FullStrideIsNonOverlapping) {
  const LanguageModel model = small_model();
  const std::vector<int32_t> tokens = stream(333);
  EXPECT_EQ(evaluate(model, tokens, {.length = 50, .stride = 50}).nll_sum,
            evaluate(model, tokens, {.length = 50}).nll_sum);
}

TEST(Evaluate, ATextShorterThanTheLengthHasOneValueForEveryStride) {
  const LanguageModel model = small_model();
  const std::vector<int32_t> tokens = stream(30);
  const double expected = evaluate(model, tokens, {.length = 64}).nll_sum;
  for (const int64_t stride : {1, 2, 7, 30, 31, 63}) {
    EXPECT_NEAR(evaluate(model, tokens, {.length = 64, .stride = stride}).nll_sum, expected, 1e-3) << stride;
  }
}

TEST(Evaluate, EveryTokenIsScoredOnceAndPositionsAddUp) {
  const LanguageModel model = small_model();
  for (const int64_t count : {1, 2, 63, 64, 65, 200}) {
    for (const int64_t stride : {1, 5, 32, 64}) {
      const Evaluation found = evaluate(model, stream(count), {.length = 64, .stride = stride});
      EXPECT_EQ(found.tokens, count);
      EXPECT_EQ(std::accumulate(found.position_tokens.begin(), found.position_tokens.end(), int64_t{0}), count);
      EXPECT_NEAR(std::accumulate(found.position_nll.begin(), found.position_nll.end(), 0.0), found.nll_sum, 1e-6);
      EXPECT_NEAR(found.perplexity(), std::exp(found.nll_sum / static_cast<double>(count)), 1e-9);
    }
  }
}

TEST(Evaluate, DoesNotDependOnThreadsOrBatching) {
  const test::RuntimeGuard guard;
  const LanguageModel model = small_model();
  const std::vector<int32_t> tokens = stream(500);
  set_threads(1);
  const double expected = evaluate(model, tokens, {.length = 40, .stride = 10}).nll_sum;
  set_threads(3);
  EXPECT_EQ(evaluate(model, tokens, {.length = 40, .stride = 10}).nll_sum, expected);
  EXPECT_NEAR(evaluate(model, tokens, {.length = 40, .stride = 10, .batch_tokens = 1}).nll_sum, expected, 1e-2);
  // As many windows at once as batch_tokens hold, no more: what bounds the memory.
  for (const int64_t together : {1, 3, 5}) {
    int64_t calls = 0;
    EvaluateOptions options{.length = 50, .batch_tokens = 50 * together + 49};
    options.on_progress = [&](int64_t, int64_t) { ++calls; };
    evaluate(model, tokens, options);
    EXPECT_EQ(calls, (10 + together - 1) / together);
  }
}

TEST(Evaluate, BadLengthsAndStridesAreUsageErrors) {
  const LanguageModel model = small_model();
  const std::vector<int32_t> tokens = stream(30);
  EXPECT_THROW(evaluate(model, tokens, {.length = 0}), UsageError);
  EXPECT_THROW(evaluate(model, tokens, {.length = 8, .stride = 9}), UsageError);
  EXPECT_THROW(evaluate(model, tokens, {.length = 8, .stride = -1}), UsageError);
  EXPECT_THROW(evaluate(model, {}, {.length = 8}), Error);
  const LanguageModel learned = small_model(Position::learned, 8);
  EXPECT_NO_THROW(evaluate(learned, tokens, {.length = 8}));
  EXPECT_THROW(evaluate(learned, tokens, {.length = 9}), Error);
}

}  // namespace
}  // namespace alibi::evaluation
