// Training over ranks that divide every sequence.
#include <gtest/gtest.h>

#include <mutex>

#include "ranks/threads.h"
#include "testing.h"
#include "train/small_run.h"
#include "train/train_over.h"

namespace alibi::training {
namespace {

struct SequenceRun {
  std::vector<float> loss, weights;
  bool operator==(const SequenceRun&) const = default;
};

/// Sequences of 192, 192 and 266 rows for three ranks, and at the end of the text one of 80, which one rank has.
struct SequenceJob {
  static constexpr int64_t length = 650;
  TrainOptions options;
  Position position = Position::alibi;
  float dropout = 0;
  bool encoder = false, sinks = false;
  int canon_kernel = 0;
  float ssmax = 0;

  explicit SequenceJob(int64_t sequence_ranks, int64_t shards = 1) {
    options.train_length = length;
    options.batch_tokens = options.micro_batch_tokens = 2 * length;
    options.train_tokens = 4 * options.batch_tokens;
    options.learning_rate = 5e-3;
    options.shards = shards;
    options.sequence_ranks = sequence_ranks;
  }

  LanguageModel model() const {
    LanguageModelConfig config = test::small_config();
    config.transformer.block.dropout = config.transformer.attention.dropout = dropout;
    config.transformer.attention.t5_buckets = 16;
    config.transformer.attention.causal = !encoder;
    config.transformer.attention.sinks = sinks;
    config.transformer.attention.canon_kernel = canon_kernel;
    config.transformer.attention.ssmax = ssmax;
    if (encoder) config.vocab_size += 1;
    return LanguageModel(with_position(config, position, length), 1);
  }

  SequenceRun over(int ranks) const {
    const std::vector<int32_t> tokens = test::stream(2 * length + 80);
    SequenceRun outcome;
    std::mutex mutex;
    std::vector<std::vector<float>> of_ranks;
    ranks::run_as_threads(ranks, [&](ranks::Group& group) {
      LanguageModel trained = model();
      const TrainResult result = train_over(&group, trained, tokens, options, {});
      const std::lock_guard lock(mutex);
      of_ranks.push_back(test::weights(trained));
      if (group.rank() == 0) outcome = {result.loss, of_ranks.back()};
    });
    for (const std::vector<float>& one : of_ranks) EXPECT_EQ(one, outcome.weights);
    return outcome;
  }
};

void expect_near(const SequenceRun& found, const SequenceRun& expected, double loss, double weights) {
  ASSERT_EQ(found.loss.size(), expected.loss.size());
  EXPECT_LE(test::max_abs_diff(found.loss, expected.loss), loss);
  EXPECT_LE(test::max_abs_diff(found.weights, expected.weights), weights);
}

TEST(TrainOverSequenceRanks, TrainTheModelOfOneProcess) {
  for (const Position position :
       {Position::alibi, Position::t5, Position::sinusoidal, Position::rotary, Position::learned}) {
    SequenceJob one(1), three(3);
    one.position = three.position = position;
    SCOPED_TRACE(name_of(position));
    expect_near(three.over(3), one.over(1), 1e-4, 2e-3);
  }
}

TEST(TrainOverSequenceRanks, GatesAndSinksAreThoseOfOneProcess) {
  for (const bool recompute : {false, true}) {
    SequenceJob one(1), three(3);
    one.position = three.position = position_from("gates");
    one.sinks = three.sinks = true;
    one.ssmax = three.ssmax = 0.3f;
    one.options.recompute = three.options.recompute = recompute;
    SCOPED_TRACE(recompute);
    expect_near(three.over(3), one.over(1), 1e-4, 2e-3);
  }
}

TEST(TrainOverSequenceRanks, OptionsAndModelsOfAllKinds) {
  for (const bool encoder : {false, true}) {
    SequenceJob one(1), two(2);
    one.encoder = two.encoder = encoder;
    one.options.recompute = two.options.recompute = true;
    SCOPED_TRACE(encoder);
    expect_near(two.over(2), one.over(1), 1e-4, 2e-3);
  }
  SequenceJob one(1), two(2);
  one.options.precision = two.options.precision = Precision::bf16;
  expect_near(two.over(2), one.over(1), 0.02, 0.05);
}

TEST(TrainOverSequenceRanks, TheBitsDependOnTheNumberThatDividesNotOnTheNumberOfRanks) {
  SequenceJob job(2, 2);
  job.dropout = 0.1f;
  const SequenceRun two = job.over(2);
  EXPECT_EQ(job.over(4), two);
  EXPECT_NE(SequenceJob(3, 2).over(3).weights, two.weights);
}

TEST(TrainOverSequenceRanks, RefusesNumbersThatDoNotFit) {
  test::expect_error<UsageError>([] { SequenceJob(3).over(3 + 1); }, "4 ranks were started, but the run has 1 shards");
  test::expect_error<UsageError>([] { SequenceJob(2, 2).over(1); },
                                 "1 ranks were started, sequence_ranks is 2 and shards is 2");
  test::expect_error<UsageError>([] { SequenceJob(2, 2).over(3); }, "3 ranks were started, sequence_ranks is 2");
  test::expect_error<UsageError>([] { SequenceJob(4).over(4); },
                                 "sequence_ranks is 4, but training sequences have 650 tokens; expected at least 768");
  SequenceJob job(2);
  job.canon_kernel = 4;
  test::expect_error<UsageError>([&] { job.over(2); }, "canon_kernel is 4 and sequence_ranks is 2");
}

}  // namespace
}  // namespace alibi::training
