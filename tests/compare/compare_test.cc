#include "alibi/compare.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <string>

#include "alibi/results.h"
#include "alibi/runtime.h"
#include "compare/bigram.h"
#include "compare/run.h"
#include "compare/short_run.h"
#include "core/files.h"
#include "report/json.h"
#include "report/summary.h"
#include "report/tables.h"
#include "temporary_folder.h"
#include "testing.h"
#include "text/data_folder.h"
#include "text/text_encoding.h"

namespace alibi::comparison {
namespace {

using test::lines;
using test::setting;
using test::short_run;
using test::shorter_run;
using test::TemporaryFolder;

TEST(Compare, AllMethodsSeeTheTokensThatTrainingMakes) {
  const TemporaryFolder folder;
  CompareOptions options = short_run(folder);
  options.out = folder / "out";
  const CompareResults results = compare(options);

  const TrainingData data = training_data(options.texts, options.valid, options.tokenizer);
  EXPECT_EQ(results.tokenizer, "bpe");
  EXPECT_EQ(results.vocab_size, data.tokenizer->vocab_size());
  EXPECT_EQ(results.valid_bytes, data.valid_bytes);
  EXPECT_NE(setting(results, "tokenizer").find("bpe, 300 different tokens"), std::string::npos);
  ASSERT_EQ(results.methods.size(), 2u);
  for (const MethodResults& method : results.methods) {
    const LanguageModel model = LanguageModel::load(options.out / method.model_folder);
    EXPECT_EQ(model.tokenizer().fingerprint(), data.tokenizer->fingerprint());
    ASSERT_EQ(method.evaluations.size(), 2u);
    for (const EvaluationPoint& point : method.evaluations) {
      // Blocks of the longest length, of which the whole text is made: the same targets at both lengths.
      std::vector<Segment> blocks;
      const auto all = static_cast<int64_t>(data.valid.tokens.size());
      for (int64_t at = 0; at < all; at += 32) blocks.push_back({at, std::min(all, at + 32)});
      const Evaluation expected = evaluate(model, data.valid.tokens, {.length = point.length, .segments = blocks});
      EXPECT_EQ(point.nll, expected.nll());
      EXPECT_EQ(point.tokens, static_cast<int64_t>(data.valid.tokens.size()));
      const double bits = point.nll * static_cast<double>(point.tokens) / std::log(2.0);
      EXPECT_NEAR(point.bits_per_byte, bits / static_cast<double>(data.valid_bytes), 1e-9);
    }
    // Tokens are longer than bytes, and the mark lies where the text of the training length ends.
    EXPECT_GT(method.sample_bytes_at_train_length, options.train.train_length);
    EXPECT_LT(method.sample_bytes_at_train_length,
              static_cast<int64_t>(method.sample_prompt.size() + method.sample.size()));
  }
  // The same model as training alone makes.
  LanguageModel model(with_vocab_size(with_position(preset("tiny"), Position::none, 8), data.tokenizer->vocab_size()),
                      0, data.tokenizer);
  const TrainResult trained = train(model, data.train.tokens, options.train);
  const double expected_nll = evaluate(model, data.valid.tokens, {.length = 8}).nll();
  EXPECT_NEAR(results.methods[1].evaluations[0].nll, expected_nll, 1e-9);
  // So few updates are all points of the curve.
  ASSERT_EQ(results.methods[1].loss.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    const LossPoint& point = results.methods[1].loss[i];
    EXPECT_EQ(point.step, static_cast<int64_t>(i) + 1);
    EXPECT_EQ(point.tokens, 64 * point.step);
    EXPECT_EQ(static_cast<float>(point.loss), trained.loss[i]);
  }
}

TEST(Compare, ADataFolderGivesTheSameResults) {
  const TemporaryFolder folder;
  CompareOptions options = short_run(folder);
  options.positions = {Position::alibi};
  options.eval_tokens = 50;
  const CompareResults of_text = compare(options);

  const text::Corpus corpus = text::read_corpus(options.texts, options.valid);
  const std::string data = (folder / "data").string();
  text::write_data_folder(data, corpus, *text::make_tokenizer(options.tokenizer, corpus.train));
  options.texts = {data};
  options.valid.clear();
  test::expect_error<UsageError>([&] { compare(options); }, "its own tokenizer");
  options.tokenizer = {};
  const CompareResults of_data = compare(options);

  EXPECT_EQ(of_data.tokenizer, "bpe");
  EXPECT_EQ(of_data.train_bytes, of_text.train_bytes);
  EXPECT_EQ(of_data.train_files, 1);
  EXPECT_EQ(of_data.methods[0].sample_prompt, of_text.methods[0].sample_prompt);
  EXPECT_EQ(of_data.methods[0].sample, of_text.methods[0].sample);
  for (size_t i = 0; i < 2; ++i) {
    const EvaluationPoint &a = of_text.methods[0].evaluations[i], &b = of_data.methods[0].evaluations[i];
    EXPECT_EQ(a.tokens, 50);
    EXPECT_EQ(a.nll, b.nll);
    EXPECT_EQ(a.bits_per_byte, b.bits_per_byte);
  }
}

TEST(Compare, ProgressNamesTheWorkOnTheTextAndThenTheMethods) {
  const TemporaryFolder folder;
  CompareOptions options = short_run(folder);
  std::set<std::string> on_text;
  std::map<std::string, std::set<std::string>> phases;
  compare(options, [&](const CompareStatus& status) {
    EXPECT_GE(status.fraction, 0);
    EXPECT_LE(status.fraction, 1);
    (status.method.empty() ? on_text : phases[status.method]).insert(status.phase);
  });
  EXPECT_TRUE(on_text.contains("tokenize"));
  const std::set<std::string> of_a_method{"train", "evaluate", "generate"};
  EXPECT_EQ(phases, (std::map<std::string, std::set<std::string>>{{"alibi", of_a_method}, {"none", of_a_method}}));
}

TEST(Compare, SeedsAndTrainingLengthsAreRunsThatStay) {
  const TemporaryFolder folder;
  CompareOptions options = shorter_run(folder);
  options.out = folder / "out";
  options.seeds = 2;
  std::set<std::string> worked;
  const auto run = [&] {
    worked.clear();
    return compare(options, [&](const CompareStatus& status) {
      if (!status.method.empty()) {
        worked.insert(status.method + std::to_string(status.train_length) + "-" + std::to_string(status.seed));
      }
    });
  };
  const CompareResults two = run();
  EXPECT_EQ(worked, (std::set<std::string>{"alibi8-0", "alibi8-1", "none8-0", "none8-1"}));
  EXPECT_EQ(two.methods[0].seeds, (std::vector<uint64_t>{0, 1}));
  EXPECT_NE(two.methods[0].runs[0].evaluations[0].nll, two.methods[0].runs[1].evaluations[0].nll);
  EXPECT_GT(two.methods[0].evaluations[0].deviation, 0);

  options.seeds = 3;  // what is there is not done again
  options.train_lengths = {8, 16};
  const CompareResults more = run();
  EXPECT_EQ(worked, (std::set<std::string>{"alibi8-2", "none8-2", "alibi16-0", "none16-0", "alibi16-1", "none16-1",
                                           "alibi16-2", "none16-2"}));
  ASSERT_EQ(more.methods.size(), 4u);
  EXPECT_EQ(more.methods[2].name, "alibi@16");
  EXPECT_EQ(more.methods[0].runs[1].evaluations[0].nll, two.methods[0].runs[1].evaluations[0].nll);

  CompareOptions other = options;
  other.train.learning_rate = 0.5;
  test::expect_error<Error>([&] { compare(other); }, "learning_rate is 0.5, was 0.004");
  other.overwrite = true;
  other.seeds = 1;
  other.train_lengths = {8};
  EXPECT_EQ(compare(other).runs_done(), 2);
  test::expect_error<Error>([&] { compare(options); }, "contains a different comparison");
}

TEST(Compare, TunedRatesAreThoseThatDoBest) {
  const TemporaryFolder folder;
  CompareOptions options = shorter_run(folder);
  options.out = folder / "out";
  options.tune_rates = {1e-9, 0.01, 1e-8};
  const CompareResults results = compare(options);
  for (const MethodResults& method : results.methods) EXPECT_EQ(method.learning_rate, 0.01);
  EXPECT_NE(setting(results, "tuning").find("alibi 0.01 (the lowest or highest rate tried"), std::string::npos);
  EXPECT_NE(setting(results, "tuning").find("the rates 1e-09, 1e-08, 0.01 were tried"), std::string::npos);
  // As if the rate had been given, and on all of the training text.
  options.out = folder / "given";
  options.tune_rates.clear();
  options.train.learning_rate = 0.01;
  const CompareResults given = compare(options);
  EXPECT_EQ(given.methods[1].evaluations[0].nll, results.methods[1].evaluations[0].nll);
  EXPECT_NE(setting(given, "tuning").find("not tuned"), std::string::npos);
}

TEST(Compare, TrainingLengthsHaveTheSameUpdates) {
  const TemporaryFolder folder;
  CompareOptions options = shorter_run(folder);
  options.train_lengths = {8, 24};
  test::expect_error<UsageError>([&] { compare(options); }, "--batch-tokens 72, the nearest");
}

TEST(Compare, WhatIsStoppedGoesOnToTheSameResults) {
  const TemporaryFolder folder;
  CompareOptions options = shorter_run(folder);
  options.seeds = 2;
  options.sample_tokens = 12;
  options.stride = 4;
  options.one_pass = true;
  options.interpolation = Interpolation{.dynamic = true};
  options.windowed = {Position::none};
  options.dropout = 0.1f;
  const CompareResults expected = compare(options);
  options.out = folder / "out";
  // Stops later and later, at every place that asks.
  CompareResults found;
  int calls = 0;
  do {
    int left = ++calls;
    options.should_stop = [&] { return --left == 0; };
    found = compare(options);
    ASSERT_LT(calls, 100);
  } while (found.runs_done() < 4);
  EXPECT_GT(calls, 3);
  for (size_t m = 0; m < 2; ++m) {
    for (size_t r = 0; r < 2; ++r) {
      const RunResults &a = expected.methods[m].runs[r], &b = found.methods[m].runs[r];
      ASSERT_EQ(a.evaluations.size(), b.evaluations.size());
      ASSERT_EQ(a.sliding.size(), 2u);
      for (size_t i = 0; i < a.evaluations.size(); ++i)
        EXPECT_EQ(a.evaluations[i].block_nll, b.evaluations[i].block_nll);
      for (size_t i = 0; i < a.sliding.size(); ++i) EXPECT_EQ(a.sliding[i].block_nll, b.sliding[i].block_nll);
      ASSERT_EQ(a.streaming.size(), 1u);
      EXPECT_EQ(a.streaming[0].block_nll, b.streaming.at(0).block_nll);
      ASSERT_EQ(a.interpolated.size(), b.interpolated.size());
      for (size_t i = 0; i < a.interpolated.size(); ++i)
        EXPECT_EQ(a.interpolated[i].block_nll, b.interpolated[i].block_nll);
      ASSERT_EQ(a.windowed.size(), m);
      for (size_t i = 0; i < m; ++i) EXPECT_EQ(a.windowed[i].block_nll, b.windowed.at(i).block_nll);
      for (size_t i = 0; i < a.context.size(); ++i) EXPECT_EQ(a.context[i].block_nll, b.context[i].block_nll);
      for (size_t i = 0; i < a.loss.size(); ++i) EXPECT_EQ(a.loss[i].loss, b.loss[i].loss);
      EXPECT_EQ(a.per_position_nll, b.per_position_nll);
      EXPECT_EQ(text::well_formed(a.sample), text::well_formed(b.sample));  // that of a file is
    }
  }
}

TEST(Compare, OnePassAndFlatterSlopesStandBesideWindows) {
  const TemporaryFolder folder;
  CompareOptions options = short_run(folder);
  options.positions = {Position::alibi, Position::learned};
  options.sample_tokens = 0;
  options.one_pass = true;
  options.interpolation = Interpolation{.factor = 2};
  options.out = folder / "out";
  const CompareResults results = compare(options);
  const MethodResults &alibi = results.methods.at(0), &learned = results.methods.at(1);
  ASSERT_EQ(alibi.streaming.size(), 1u);
  EXPECT_EQ(alibi.streaming[0].tokens, alibi.evaluations[0].tokens);
  EXPECT_GT(alibi.streaming[0].length, alibi.evaluations.back().length);
  EXPECT_EQ(alibi.streaming[0].block_nll.size(), alibi.evaluations[0].block_nll.size());
  ASSERT_FALSE(alibi.interpolated.empty());
  for (const EvaluationPoint& flatter : alibi.interpolated) {
    EXPECT_GT(flatter.length, results.train_length);
    for (const EvaluationPoint& plain : alibi.evaluations) {
      EXPECT_TRUE(plain.length != flatter.length || plain.nll != flatter.nll) << plain.length;
    }
  }
  EXPECT_TRUE(learned.interpolated.empty());
  ASSERT_EQ(learned.streaming.size(), 1u);
  EXPECT_NE(learned.streaming[0].gap.find("learned positions end at"), std::string::npos);
  const std::string table = report::comparison_text(results), page = core::read_file(options.out / "report.html");
  for (const std::string* text : {&table, &page}) {
    EXPECT_NE(text->find("in one pass"), std::string::npos);
    EXPECT_NE(text->find("scaled positions"), std::string::npos);
    EXPECT_NE(text->find("learned positions end at"), std::string::npos);
  }
  // The model read it as evaluate_stream() does, with the slopes that it was trained with.
  const LanguageModel model = LanguageModel::load(options.out / alibi.runs[0].model_folder);
  EXPECT_EQ(model.interpolation().factor, 1);
  const CompareResults read = report::results_from_json(core::read_file(options.out / "results.json"));
  EXPECT_EQ(read.methods.at(0).streaming.at(0).nll, alibi.streaming[0].nll);
  EXPECT_EQ(read.methods.at(0).interpolated.size(), alibi.interpolated.size());
}

TEST(Compare, AWindowAtTestTimeIsAMethodOfItsOwn) {
  const TemporaryFolder folder;
  CompareOptions options = short_run(folder);
  options.positions = {Position::alibi, Position::learned, Position::none};
  options.windowed = {Position::none, Position::learned, Position::none};
  options.train_lengths = {8, 16};
  options.lengths = {8, 16, 32};
  options.sample_tokens = 0;
  options.timing_rounds = 0;
  options.out = folder / "out";
  const CompareResults results = compare(options);
  EXPECT_EQ(results.runs_done(), 6);
  EXPECT_EQ(results.runs_planned, 6);
  std::vector<std::string> names;
  for (const MethodResults& method : results.methods) names.push_back(method.name);
  EXPECT_EQ(names, (std::vector<std::string>{"alibi@8", "learned@8", "learned@8, window 8", "none@8",
                                             "none@8, window 8", "alibi@16", "learned@16", "learned@16, window 16",
                                             "none@16", "none@16, window 16"}));
  const MethodResults &plain = results.methods.at(8), &windowed = results.methods.at(9);
  EXPECT_EQ(windowed.window, 16);
  EXPECT_EQ(windowed.model_folder, plain.model_folder);
  ASSERT_EQ(windowed.evaluations.size(), plain.evaluations.size());
  EXPECT_EQ(windowed.evaluations[1].length, 16);
  EXPECT_EQ(windowed.evaluations[1].nll, plain.evaluations[1].nll);
  EXPECT_NE(windowed.evaluations[2].nll, plain.evaluations[2].nll);
  // As a model whose configuration has the window.
  const TrainingData data = training_data(options.texts, options.valid, options.tokenizer);
  const LanguageModel model = LanguageModel::load(options.out / plain.model_folder);
  EXPECT_EQ(model.config().transformer.attention.sliding_window, 0);
  const LanguageModel with_window =
      model.sharing_weights([](LanguageModelConfig& config) { config.transformer.attention.sliding_window = 16; });
  EXPECT_NEAR(evaluate(with_window, data.valid.tokens, {.length = 32}).nll(), windowed.evaluations[2].nll, 1e-6);
  EXPECT_NE(results.methods.at(2).evaluations[2].gap.find("learned positions end at 8"), std::string::npos);

  const std::string table = report::comparison_text(results), page = core::read_file(options.out / "report.html"),
                    figure = core::read_file(options.out / "figure.svg");
  for (const std::string* text : {&table, &page, &figure})
    EXPECT_NE(text->find("none@16, window 16"), std::string::npos);
  EXPECT_NE(setting(results, "evaluation").find("none, learned also with a sliding window"), std::string::npos);
  const CompareResults read = report::results_from_json(core::read_file(options.out / "results.json"));
  ASSERT_EQ(read.methods.size(), results.methods.size());
  EXPECT_EQ(read.runs_done(), 6);
  EXPECT_EQ(read.methods[9].name, windowed.name);
  EXPECT_EQ(read.methods[9].evaluations[2].nll, windowed.evaluations[2].nll);
  EXPECT_EQ(report::comparison_text(read), table);

  options.out.clear();
  CompareOptions wrong = options;
  wrong.windowed = {Position::rotary};
  test::expect_error<UsageError>([&] { compare(wrong); }, "windowed has rotary, which is not among");
  wrong = options;
  wrong.model.set("sliding_window", OptionValue(int64_t{4}));
  test::expect_error<UsageError>([&] { compare(wrong); }, "all models have a sliding window of 4");
  wrong = options;
  wrong.texts.clear();
  wrong.tasks = {"recall"};
  wrong.train_lengths = {64};
  test::expect_error<UsageError>([&] { compare(wrong); }, "there is no text to evaluate");
}

TEST(Compare, SettingsOfTrainingReachItAndTheReport) {
  const TemporaryFolder folder;
  CompareOptions options = short_run(folder);
  options.positions = {Position::alibi};
  options.sample_tokens = 0;
  const auto loss = [&] { return compare(options).methods[0].evaluations[0].nll; };
  const double before = loss();
  options.dropout = 0.5f;
  options.train.warmup_steps = 3;
  options.train.schedule_kind = ScheduleKind::constant;
  const CompareResults results = compare(options);
  EXPECT_NE(setting(results, "model").find("dropout 0.5"), std::string::npos);
  EXPECT_NE(setting(results, "optimizer").find("after 3 updates of warmup, constant schedule"), std::string::npos);
  EXPECT_NE(results.methods[0].evaluations[0].nll, before);
  options.dropout = 1.5f;
  test::expect_error<UsageError>([&] { compare(options); }, "dropout is 1.5");
  options.dropout = 0;
  options.eval_tokens = -1;
  test::expect_error<UsageError>([&] { compare(options); }, "eval_tokens is -1, expected at least 0");
}

TEST(Compare, WhatKilledOnesLeftIsRemoved) {
  const TemporaryFolder folder;
  CompareOptions options = shorter_run(folder);
  options.out = folder / "out";
  compare(options);
  const std::filesystem::path model = options.out / "models" / "alibi-8-seed0";
  const std::vector<std::filesystem::path> left = {folder.write("out/compare.json.99999.1.part", "{"),
                                                   folder.write("out/models/alibi-8-seed0/run.json.99999.2.part", "{"),
                                                   model / "checkpoints" / "step-000004.99999.part"};
  std::filesystem::create_directories(left[2]);
  compare(options);
  for (const std::filesystem::path& path : left) EXPECT_FALSE(std::filesystem::exists(path)) << path;
  EXPECT_TRUE(std::filesystem::exists(model / "run.json"));
}

TEST(Compare, SpeedIsMeasuredInRoundsWithTheSkipRuleAndWithout) {
  const TemporaryFolder folder;
  CompareOptions options = shorter_run(folder);
  options.positions = {Position::alibi, Position::learned};
  options.lengths = {8, 16, 32};
  options.timing_rounds = 2;
  options.out = folder / "out";
  const CompareResults results = compare(options);
  ASSERT_EQ(results.speed.size(), 3u);
  EXPECT_EQ(results.speed[0].name(), "alibi");
  EXPECT_EQ(results.speed[1].name(), "alibi, all keys");
  EXPECT_EQ(results.speed[2].name(), "learned");
  for (const MethodSpeed& speed : results.speed) {
    ASSERT_EQ(speed.points.size(), 3u);
    EXPECT_EQ(speed.points[0].work, "train");
    EXPECT_EQ(speed.points[0].length, 8);
    EXPECT_EQ(speed.points[1].work, "eval");
    EXPECT_EQ(speed.points[1].length, 8);
    EXPECT_EQ(speed.points[2].length, 32);
    for (const SpeedPoint& point : speed.points) {
      const bool ends = speed.method == "learned" && point.length == 32;
      EXPECT_EQ(std::isfinite(point.tokens_per_second) && point.tokens_per_second > 0, !ends);
      EXPECT_EQ(std::isfinite(point.cpu_seconds) && point.cpu_seconds > 0, !ends);
      EXPECT_EQ(point.spread >= 1, !ends);
    }
  }
  // The same command does not measure again, and what was trained is as it was.
  const CompareResults again = compare(options);
  ASSERT_EQ(again.speed.size(), 3u);
  EXPECT_EQ(again.speed[1].points[0].tokens_per_second, results.speed[1].points[0].tokens_per_second);
  EXPECT_EQ(again.methods[0].evaluations[2].nll, results.methods[0].evaluations[2].nll);
}

TEST(Compare, SpeedIsMeasuredWithOneModelInMemory) {
  const TemporaryFolder folder;
  CompareOptions options = shorter_run(folder);
  options.positions = {Position::alibi, Position::none, Position::sinusoidal};
  options.out = folder / "out";
  const CompareResults trained = compare(options);
  options.timing_rounds = 2;
  const int64_t before = tensor_bytes();
  int64_t rounds = 0, most = 0;
  const CompareResults results = compare(options, [&](const CompareStatus& status) {
    if (status.phase != "speed") return;
    ++rounds;
    most = std::max(most, tensor_bytes() - before);
  });
  EXPECT_EQ(rounds, 2 * 4) << "alibi also without the skip rule";
  EXPECT_EQ(results.speed.front().points.front().rounds, 2);
  EXPECT_LT(most, trained.parameters * 4) << "a model is kept between its rounds";
}

TEST(Compare, KnowsWhatATableOfPairsReaches) {
  const TemporaryFolder folder;
  const CompareOptions options = shorter_run(folder);  // four updates
  const CompareResults results = compare(options);
  const TrainingData data = training_data(options.texts, options.valid, options.tokenizer);
  const auto all = static_cast<int64_t>(data.valid.tokens.size());
  EXPECT_GT(results.held_out.bigram_nll, 0);
  EXPECT_LT(results.held_out.bigram_nll, results.methods[0].evaluations[0].nll) << "four updates teach nothing";
  EXPECT_TRUE(report::has_not_learned(results, results.methods[0]));
  EXPECT_LT(results.held_out.bigram_nll, 1.5 * bigram_nll(data.train.tokens, data.valid.tokens, {{0, all}}, 300));
}

}  // namespace
}  // namespace alibi::comparison
