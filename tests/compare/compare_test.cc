#include "alibi/compare.h"

#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <string>

#include "alibi/results.h"
#include "core/files.h"
#include "temporary_folder.h"
#include "testing.h"
#include "text/data_folder.h"

namespace alibi {
namespace {

using test::TemporaryFolder;

std::string lines(int first, int count) {
  std::string text;
  for (int i = first; i < first + count; ++i) {
    text += "the quick brown fox number " + std::to_string(i) + " jumps over the lazy dog and runs away\n";
  }
  return text;
}

/// A run of a second: `text` and `valid` in the folder, two methods, a few updates.
CompareOptions short_run(const TemporaryFolder& folder) {
  CompareOptions options = compare_defaults("tiny");
  options.texts = {folder.write("text.txt", lines(0, 300))};
  options.valid = {folder.write("valid.txt", lines(1000, 40))};
  options.tokenizer = {.kind = "bpe", .vocab_size = 300};
  options.methods = {Position::alibi, Position::none};
  options.lengths = {8, 32};
  options.train.length = 8;
  options.train.batch_tokens = 64;
  options.train.tokens = 256;
  options.sample_tokens = 12;
  return options;
}

std::string setting(const CompareResults& results, const std::string& name) {
  for (const auto& [key, value] : results.settings) {
    if (key == name) return value;
  }
  return "";
}

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
      const Evaluation expected = evaluate(model, data.valid.tokens, {.length = point.length});
      EXPECT_EQ(point.nll, expected.nll());
      EXPECT_EQ(point.tokens, static_cast<int64_t>(data.valid.tokens.size()));
      const double bits = point.nll * static_cast<double>(point.tokens) / std::log(2.0);
      EXPECT_NEAR(point.bits_per_byte, bits / static_cast<double>(data.valid_bytes), 1e-9);
    }
    // Tokens are longer than bytes, and the mark lies where the text of the training length ends.
    EXPECT_GT(method.sample_bytes_at_train_length, options.train.length);
    EXPECT_LT(method.sample_bytes_at_train_length,
              static_cast<int64_t>(method.sample_prompt.size() + method.sample.size()));
  }
  // The same model as training alone makes.
  LanguageModel model(with_vocab_size(with_position(preset("tiny"), Position::none, 8), data.tokenizer->vocab_size()),
                      0, data.tokenizer);
  const TrainResult trained = train(model, data.train.tokens, options.train);
  EXPECT_EQ(results.methods[1].evaluations[0].nll, evaluate(model, data.valid.tokens, {.length = 8}).nll());
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
  options.methods = {Position::alibi};
  options.eval_tokens = 50;
  const CompareResults of_text = compare(options);

  const Corpus corpus = read_corpus(options.texts, options.valid);
  const std::string data = (folder / "data").string();
  write_data_folder(data, corpus, *make_tokenizer(options.tokenizer, corpus.train));
  options.texts = {data};
  options.valid.clear();
  test::expect_error<UsageError>([&] { compare(options); }, "a tokenizer of its own");
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

TEST(Compare, SettingsOfTrainingReachItAndTheReport) {
  const TemporaryFolder folder;
  CompareOptions options = short_run(folder);
  options.methods = {Position::alibi};
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

}  // namespace
}  // namespace alibi
