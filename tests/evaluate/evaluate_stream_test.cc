// One pass over a text gives what one window over the same text gives.
#include "alibi/evaluate_stream.h"

#include <gtest/gtest.h>

#include "alibi/error.h"
#include "alibi/evaluate.h"
#include "positions.h"
#include "small_config.h"
#include "testing.h"

namespace alibi::evaluation {
namespace {

LanguageModel streaming_model(Position position, int64_t positions = 5000) {
  return LanguageModel(with_position(test::small_config(), position, positions), 1);
}

class Streaming : public testing::TestWithParam<Position> {};
INSTANTIATE_TEST_SUITE_P(, Streaming, testing::ValuesIn(test::position_cases()),
                         [](const auto& test) { return test::case_name(test.param); });

TEST_P(Streaming, GivesWhatOneWindowGives) {
  const LanguageModel model = streaming_model(GetParam());
  for (const int64_t count : {1, 256, 4700}) {
    const Tensor text = test::random_ids({count}, 1, 256);
    const std::span<const int32_t> tokens(text.data<int32_t>(), static_cast<size_t>(count));
    const Evaluation window = evaluate(model, tokens, {.length = count});
    int64_t reported = 0;
    EvaluateStreamOptions options;
    options.on_progress = [&](int64_t scored, int64_t all) {
      EXPECT_GT(scored, reported);
      reported = scored;
      EXPECT_EQ(all, count);
    };
    const StreamEvaluation stream = evaluate_stream(model, tokens, options);
    EXPECT_EQ(stream.tokens, count);
    EXPECT_EQ(reported, count);
    EXPECT_TRUE(std::abs(stream.nll() - window.nll()) <= 1e-6) << stream.nll() << " " << window.nll();
    EXPECT_GT(stream.cache_bytes, 0);
    // Span by span, too.
    double seconds = 0;
    int64_t end = 0;
    for (const StreamSpan& span : stream.spans) {
      EXPECT_EQ(span.begin, end);
      end = span.end;
      seconds += span.seconds;
      double expected = 0;
      for (int64_t i = span.begin; i < span.end; ++i) expected += window.position_nll[static_cast<size_t>(i)];
      EXPECT_TRUE(std::abs(span.nll_sum - expected) <= 1e-5 * static_cast<double>(span.end - span.begin)) << span.begin;
    }
    EXPECT_EQ(end, count);
    EXPECT_DOUBLE_EQ(seconds, stream.seconds);
    EXPECT_EQ(stream.spans.size(), count > 4096 ? 6u : 1u);
  }
}

TEST(StreamingErrors, SayWhatIsWrong) {
  const Tensor text = test::random_ids({50}, 1, 256);
  const std::span<const int32_t> tokens(text.data<int32_t>(), 50);
  test::expect_error([&] { evaluate_stream(streaming_model(Position::learned, 40), tokens); },
                     "learned positions end at 40, but the text has 50 tokens");
  const LanguageModel model = streaming_model(Position::alibi);
  test::expect_error([&] { evaluate_stream(model, {}); }, "no tokens");
  LanguageModelConfig encoder = model.config();
  encoder.transformer.attention.causal = false;
  test::expect_error([&] { evaluate_stream(LanguageModel(encoder), tokens); }, "encoder");
}

TEST(EvaluateStream, SegmentsSeeWhatStandsBeforeThem) {
  const LanguageModel model(with_position(preset("tiny"), Position::alibi, 16), 3);
  std::vector<int32_t> text;
  for (int i = 0; i < 3000; ++i) text.push_back((i * i + 5 * i) % 256);
  const std::vector<Segment> segments{{0, 10}, {250, 300}, {2040, 2060}, {2060, 2100}};
  const StreamEvaluation some = evaluate_stream(model, text, {.segments = segments});
  EXPECT_EQ(some.tokens, 120);
  EXPECT_EQ(some.read, 2100);
  double sum = 0;
  for (size_t s = 0; s < segments.size(); ++s) {
    const auto [begin, end] = segments[s];
    const double before =
        begin == 0 ? 0 : evaluate_stream(model, std::span(text).first(static_cast<size_t>(begin))).nll_sum;
    const double with = evaluate_stream(model, std::span(text).first(static_cast<size_t>(end))).nll_sum;
    EXPECT_NEAR(some.segment_nll.at(s), with - before, 1e-3) << s;
    sum += some.segment_nll[s];
  }
  EXPECT_NEAR(some.nll_sum, sum, 1e-6);
  const StreamEvaluation all = evaluate_stream(model, text);
  EXPECT_EQ(all.tokens, 3000);
  EXPECT_EQ(all.segment_nll.size(), 1u);
  const std::vector<Segment> wrong{{0, 3001}};
  test::expect_error<UsageError>([&] { evaluate_stream(model, text, {.segments = wrong}); }, "segment");
}

}  // namespace
}  // namespace alibi::evaluation
