// Training over ranks: the same bits at any number of ranks, and after a resume at another number.
#include <gtest/gtest.h>

#include <functional>
#include <mutex>
#include <tuple>

#include "nn/foreach.h"
#include "ranks/threads.h"
#include "temporary_folder.h"
#include "testing.h"
#include "train/checkpoint.h"
#include "train/optimizer.h"
#include "train/small_run.h"
#include "train/train_over.h"

namespace alibi::training {
namespace {

using test::small_model;
using test::TemporaryFolder;
using test::weights;

struct RankedRun {
  std::vector<float> loss, weights;
  std::vector<double> evaluations;
  bool operator==(const RankedRun&) const = default;
};

/// Everything that a rank must get right: dropout, parts of batches, several epochs, clipping, evaluations.
TrainOptions varied_run(int64_t shards) {
  TrainOptions options = test::short_run();
  options.train_tokens = 8 * 256;
  options.micro_batch_tokens = 32;
  options.shards = shards;
  options.clip = 0.5;
  options.seed = 3;
  options.eval_steps = 3;
  options.eval_tokens = 150;
  return options;
}

struct Job {
  TrainOptions options;
  Position position = Position::alibi;
  std::filesystem::path folder = {};
  int64_t stop_after = INT64_MAX;
  int stopping_rank = 0;
  LanguageModelConfig config = test::small_config();
  float dropout = 0.1f;

  LanguageModel model() const {
    LanguageModelConfig changed = config;
    changed.transformer.block.dropout = dropout;
    changed.transformer.attention.t5_buckets = 16;
    return LanguageModel(with_position(changed, position, 16), 1);
  }

  RankedRun over(int ranks) const {
    const std::vector<int32_t> tokens = test::stream(1000), valid = test::stream(300);
    RankedRun outcome;
    std::mutex mutex;
    std::vector<std::vector<float>> of_ranks;
    ranks::run_as_threads(ranks, [&](ranks::Group& group) {
      LanguageModel trained = model();
      TrainRun run;
      run.folder = folder;
      run.resume = !folder.empty();
      run.valid = valid;
      run.checkpoint_steps = 2;
      int64_t calls = 0;
      run.should_stop = [&] { return group.rank() == stopping_rank && ++calls >= stop_after; };
      const TrainResult result = train_over(&group, trained, tokens, options, run);
      const std::lock_guard lock(mutex);
      of_ranks.push_back(weights(trained));
      if (group.rank() != 0) return;
      outcome.loss = result.loss;
      outcome.weights = weights(trained);
      for (const TrainEvaluation& one : result.evaluations) outcome.evaluations.push_back(one.loss);
    });
    for (const std::vector<float>& one : of_ranks) EXPECT_EQ(one, outcome.weights);
    return outcome;
  }
};

TEST(TrainOverRanks, AnyNumberOfRanksGivesTheSameBits) {
  for (const Position position : {Position::alibi, Position::t5, Position::sinusoidal}) {
    for (const int shards : {2, 3, 5}) {
      const Job job{varied_run(shards), position};
      const RankedRun alone = job.over(1);
      EXPECT_EQ(alone.loss.size(), 8u);
      for (int ranks = 2; ranks <= shards; ++ranks) {
        EXPECT_EQ(job.over(ranks), alone) << name_of(position) << ", " << shards << " shards, " << ranks << " ranks";
      }
    }
  }
}

TEST(TrainOverRanks, OptionsAndModelsOfAllKinds) {
  for (const Optimizer optimizer : {Optimizer::adamw, Optimizer::nag}) {
    for (const bool encoder : {false, true}) {
      Job job{varied_run(4)};
      job.options.optimizer = optimizer;
      job.options.recompute = encoder;
      if (optimizer == Optimizer::nag) job.options.learning_rate = 0.05;
      job.config.transformer.attention.causal = !encoder;
      if (encoder) job.config.vocab_size += 1;
      EXPECT_EQ(job.over(3), job.over(1)) << name_of(optimizer) << encoder;
    }
  }
  Job job{varied_run(4)};
  job.options.precision = Precision::bf16;
  EXPECT_EQ(job.over(4), job.over(1));
}

TEST(TrainOverRanks, ShardsChangeOnlyRounding) {
  Job sharded{varied_run(4)}, whole{varied_run(1)};
  sharded.dropout = whole.dropout = 0;
  const RankedRun one = whole.over(1), four = sharded.over(2);
  ASSERT_EQ(one.loss.size(), four.loss.size());
  EXPECT_NE(one.weights, four.weights);
  EXPECT_TRUE(test::max_abs_diff(one.loss, four.loss) < 1e-3) << test::max_abs_diff(one.loss, four.loss);
}

TEST(TrainOverRanks, AResumeAtAnotherNumberOfRanksGivesTheSameBits) {
  Job whole{varied_run(4)};
  const RankedRun expected = whole.over(1);
  for (const auto& [first, second, third] : {std::tuple(1, 4, 2), std::tuple(3, 1, 4), std::tuple(4, 3, 1)}) {
    TemporaryFolder folder;
    Job job{varied_run(4)};
    job.folder = folder / "model";
    job.stop_after = 3;
    job.stopping_rank = first - 1;  // any rank may be asked to stop
    job.over(first);
    EXPECT_EQ(newest_checkpoint(job.folder)->step, 3);
    job.stopping_rank = 0;
    job.stop_after = 2;
    job.over(second);
    EXPECT_EQ(newest_checkpoint(job.folder)->step, 5);
    job.stop_after = INT64_MAX;
    EXPECT_EQ(job.over(third), expected) << first << second << third;
  }
}

TEST(TrainOverRanks, CheckpointsHaveTheSameBytes) {
  TemporaryFolder one, four;
  Job job{varied_run(4)};
  std::string tensors[2];
  for (const int ranks : {1, 4}) {
    const TemporaryFolder& folder = ranks == 1 ? one : four;
    job.folder = folder / "model";
    job.over(ranks);
    for (const char* file : {"training.safetensors", "model.safetensors"}) {
      std::ifstream stream(newest_checkpoint(job.folder)->folder / file, std::ios::binary);
      tensors[ranks == 1 ? 0 : 1] += std::string(std::istreambuf_iterator<char>(stream), {});
    }
  }
  EXPECT_GT(tensors[0].size(), 100000u);
  EXPECT_TRUE(tensors[0] == tensors[1]);
}

TEST(TrainOverRanks, OtherSettingsTextsOrWeightsOfARankAreRefused) {
  struct Rank {
    Job job{varied_run(4)};
    std::vector<int32_t> tokens = test::stream(1000), valid = test::stream(300);
    uint64_t model_seed = 1;
  };
  const std::vector<std::pair<std::string, std::function<void(Rank&)>>> others{
      {"learning_rate", [](Rank& rank) { rank.job.options.learning_rate *= 2; }},
      {"seed", [](Rank& rank) { rank.job.options.seed = 4; }},
      {"train_tokens", [](Rank& rank) { rank.job.options.train_tokens += 256; }},
      {"batch_tokens", [](Rank& rank) { rank.job.options.batch_tokens /= 2; }},
      {"micro_batch_tokens", [](Rank& rank) { rank.job.options.micro_batch_tokens = 64; }},
      {"weight_decay", [](Rank& rank) { rank.job.options.weight_decay = 0.25; }},
      {"clip", [](Rank& rank) { rank.job.options.clip = 0.75; }},
      {"shards", [](Rank& rank) { rank.job.options.shards = 8; }},
      {"eval_steps", [](Rank& rank) { rank.job.options.eval_steps = 2; }},
      {"eval_steps", [](Rank& rank) { rank.job.options.eval_steps = 0; }},
      {"dropout", [](Rank& rank) { rank.job.dropout = 0.2f; }},
      {"layers", [](Rank& rank) { rank.job.config.transformer.layers += 1; }},
      {"text_fingerprint", [](Rank& rank) { rank.tokens[500] ^= 1; }},
      {"text_tokens", [](Rank& rank) { rank.tokens.pop_back(); }},
      {"held_out_text", [](Rank& rank) { rank.valid[100] ^= 1; }},
      {"the hash of the weights", [](Rank& rank) { rank.model_seed = 2; }},
  };
  for (const auto& [name, change] : others) {
    for (const int changed : {0, 2}) {
      const std::string message = test::message_of<UsageError>([&, &change = change] {  // clang 14 needs it named
        ranks::run_as_threads(3, [&](ranks::Group& group) {
          Rank rank;
          if (group.rank() == changed) change(rank);
          LanguageModelConfig config = rank.job.config;
          config.transformer.block.dropout = rank.job.dropout;
          LanguageModel model(with_position(config, Position::alibi, 16), rank.model_seed);
          TrainRun run;
          run.valid = rank.valid;
          train_over(&group, model, rank.tokens, rank.job.options, run);
        });
      });
      const std::string start =
          changed == 0 ? "rank 1 (and 1 more) differs from rank 0: " : "rank 2 differs from rank 0: ";
      EXPECT_NE(message.find(start), std::string::npos) << name << ": " << message;
      EXPECT_NE(message.find(name + " is "), std::string::npos) << name << ": " << message;
    }
  }
}

TEST(TrainOverRanks, EarlyStoppingEndsAllRanks) {
  TemporaryFolder folder;
  Job job{varied_run(2)};
  job.folder = folder / "model";
  job.options.train_tokens = 40 * 256;
  job.options.learning_rate = 0.3;  // the loss soon rises
  job.options.eval_steps = 1;
  job.options.patience = 2;
  const std::vector<int32_t> tokens = test::stream(1000), valid = test::stream(300);
  ranks::run_as_threads(2, [&](ranks::Group& group) {
    LanguageModel trained = job.model();
    TrainRun run;
    run.folder = job.folder;
    run.valid = valid;
    const TrainResult result = train_over(&group, trained, tokens, job.options, run);
    EXPECT_EQ(result.end, TrainEnd::no_gain);
    EXPECT_LT(result.steps, 40);
  });
}

/// A model with much more parameters than a part has.
LanguageModelConfig wide_config() { return test::small_config(4, 256, 4); }

TEST(TrainOverRanks, EachRankSendsAndKeepsItsShare) {
  LanguageModel model(with_position(wide_config(), Position::alibi, 16), 1);
  const auto parameters = static_cast<double>(model.parameter_count());
  for (const int ranks : {2, 4}) {
    TrainOptions options = varied_run(4);
    options.eval_steps = 0;
    options.train_tokens = 2 * 256;
    const Owners owners(model.parameters(), ranks);
    double kept = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      int64_t elements = 0;
      for (const formats::NamedTensor& one : OptimizerState(options, model.parameters(), owners, rank).tensors()) {
        elements += one.tensor.elements();
      }
      EXPECT_LE(static_cast<double>(elements), 1.1 * 2 * parameters / ranks);
      kept += static_cast<double>(elements);
    }
    EXPECT_EQ(kept, 2 * parameters);
    const std::vector<int32_t> tokens = test::stream(1000);
    ranks::run_as_threads(ranks, [&](ranks::Group& group) {
      LanguageModel trained(with_position(wide_config(), Position::alibi, 16), 1);
      train_over(&group, trained, tokens, options, {});
      const double most = 1.1 * 8 * parameters * (ranks - 1) / ranks * 2;  // of two updates
      EXPECT_LE(static_cast<double>(group.bytes_sent()), most);
      EXPECT_GE(static_cast<double>(group.bytes_sent()), most / 1.3);
    });
  }
}

TEST(TrainOverRanks, TheNormHasTheBitsOfOneProcess) {
  LanguageModel model(with_position(wide_config(), Position::alibi, 16), 1);
  model.zero_gradients();
  uint64_t seed = 0;
  for (Parameter* parameter : model.parameters()) {
    parameter->gradient.copy_from(test::random_tensor(parameter->value.shape(), ++seed));
  }
  const Owners owners(model.parameters(), 3);
  std::vector<std::vector<double>> squares;
  for (int rank = 0; rank < 3; ++rank) squares.push_back(squares_of(owners.parts_of(rank), model.parameters()));
  double sum = 0;
  std::vector<size_t> next(3);
  for (const int owner : owners.ranks_of_parts()) {
    sum += squares[static_cast<size_t>(owner)][next[static_cast<size_t>(owner)]++];
  }
  EXPECT_EQ(std::sqrt(sum), gradient_norm(model.parameters()));
}

TEST(TrainOverRanks, RefusesMoreRanksThanShardsAndMoreShardsThanSequences) {
  test::expect_error<UsageError>([] { Job{varied_run(2)}.over(3); }, "3 ranks were started, but the run has 2 shards");
  test::expect_error<UsageError>([] { Job{varied_run(17)}.over(1); },
                                 "shards is 17, but an update has 16 training sequences");
}

TEST(TrainOverRanks, ADivergingRunEndsAllRanksWithTheUpdate) {
  Job job{varied_run(2)};
  job.options.learning_rate = 1e30;
  job.options.clip = 0;
  test::expect_error<NotFiniteError>([&] { job.over(2); }, "[train] step");
}

}  // namespace
}  // namespace alibi::training
