// Models whose attention sees the nearest keys alone, with every position method: training, reading at once, and
// contexts that hold what is still seen.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <tuple>
#include <vector>

#include "alibi/context.h"
#include "alibi/error.h"
#include "alibi/generate.h"
#include "alibi/language_model.h"
#include "positions.h"
#include "small_config.h"
#include "temporary_folder.h"
#include "testing.h"

namespace alibi::model {
namespace {

constexpr int windowed_layers = 2;

LanguageModel windowed(Position position, int64_t window, int layers = windowed_layers, bool causal = true) {
  LanguageModelConfig config = test::small_config(layers);
  TransformerConfig& t = config.transformer;
  t.attention.kv_heads = 2;
  t.block.dropout = 0;
  t.attention.sliding_window = window;
  t.attention.causal = causal;
  return LanguageModel(with_position(config, position, 3000), 3);
}

Tensor ids_of(const Tensor& ids, int64_t begin, int64_t end) {
  return Tensor::view(ids.data<int32_t>() + begin, {1, end - begin}, DType::int32);
}

class WindowOf : public testing::TestWithParam<Position> {};
INSTANTIATE_TEST_SUITE_P(, WindowOf, testing::ValuesIn(test::position_cases()),
                         [](const auto& test) { return test::case_name(test.param); });

TEST_P(WindowOf, OneThatIsNeverFullChangesNothing) {
  const Tensor ids = test::random_ids({2, 200}, 1, 257), targets = test::random_ids({2, 200}, 2, 257);
  LanguageModel all = windowed(GetParam(), 0), window = windowed(GetParam(), 200);
  EXPECT_EQ(window.nll(ids, targets), all.nll(ids, targets));
  EXPECT_NE(windowed(GetParam(), 150).nll(ids, targets), all.nll(ids, targets));
  Context of_all(all), of_window(window);
  const Tensor one = ids_of(ids, 0, 200);
  for (const auto& [begin, end] : {std::pair<int64_t, int64_t>{0, 90}, {90, 91}, {91, 92}, {92, 200}}) {
    EXPECT_TRUE(test::same_bits(window.next_logits(ids_of(one, begin, end), of_window),
                                all.next_logits(ids_of(one, begin, end), of_all)));
  }
  for (LanguageModel* model : {&all, &window}) {
    model->zero_gradients();
    model->accumulate_gradients(ids, targets, 1, {});
  }
  const auto expected = all.parameters(), found = window.parameters();
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_TRUE(test::same_bits(found[i]->gradient, expected[i]->gradient)) << expected[i]->name;
  }
}

TEST_P(WindowOf, TheLastKeysAreWhatAModelOfOneLayerSees) {
  // Only relative positions are the same where the text begins later, rotary ones up to rounding.
  if (!GetParam().input.empty()) {
    GTEST_SKIP() << "its positions are absolute";
  }
  const int64_t length = 300, seen = 37;
  const LanguageModel all = windowed(GetParam(), 0, 1), window = windowed(GetParam(), seen, 1);
  const Tensor ids = test::random_ids({1, length}, 1, 257);
  Context context(window);
  for (int64_t end = 1; end <= length; end += 23) {
    const Tensor expected = all.next_logits(ids_of(ids, std::max<int64_t>(0, end - seen), end));
    EXPECT_TRUE(test::max_abs_diff(window.next_logits(ids_of(ids, 0, end)), expected) <= 1e-4) << end;
    EXPECT_TRUE(test::max_abs_diff(window.next_logits(ids_of(ids, context.position(), end), context), expected) <= 1e-4)
        << end;
  }
}

TEST_P(WindowOf, ATokenReachesNoFartherThanTheLayersCarryIt) {
  constexpr int64_t length = 150, window = 20, at = 70, reach = windowed_layers * (window - 1);
  for (const bool causal : {true, false}) {
    if (!causal && GetParam().bias == "gates") continue;  // they are for decoders
    const LanguageModel model = windowed(GetParam(), window, windowed_layers, causal);
    Tensor ids = test::random_ids({1, length}, 1, 200);
    const std::vector<float> before = model.hidden(ids).to_floats();
    ids.data<int32_t>()[at] += 1;
    const std::vector<float> after = model.hidden(ids).to_floats();
    const auto row_changes = [&](int64_t row) {
      const int64_t width = model.config().transformer.d_model;
      return !std::equal(before.begin() + row * width, before.begin() + (row + 1) * width, after.begin() + row * width);
    };
    for (int64_t row = 0; row < length; ++row) {
      const bool reached = row <= at + reach && row >= (causal ? at : at - reach);
      EXPECT_EQ(row_changes(row), reached) << row;
    }
  }
}

TEST_P(WindowOf, AContextGivesWhatTheWholeGivesInFlatMemory) {
  constexpr int64_t length = 3000, window = 100;
  const LanguageModel model = windowed(GetParam(), window);
  const Tensor ids = test::random_ids({1, length}, 1, 257), targets = test::random_ids({1, length}, 2, 257);
  const std::vector<float> whole = model.nll(ids, targets);
  Context context(model);
  std::vector<float> nll;
  const auto read_to = [&](int64_t end) {
    const int64_t begin = context.position();
    const std::vector<float> more = model.nll(ids_of(ids, begin, end), ids_of(targets, begin, end), context);
    nll.insert(nll.end(), more.begin(), more.end());
  };
  const auto max_bytes = [&](int64_t keys) {
    return windowed_layers * (keys * 2 * 2 * 16 * 4 + 2 * 1024);  // keys and values of 2 heads; norms
  };
  for (int64_t end = 1; end <= 700; ++end) {
    read_to(end);
    ASSERT_LE(context.bytes(), max_bytes(window + window / 2 + 3 * 64)) << end;
  }
  for (const int64_t end : {701, 800, 817, 1900, 1910, 3000}) read_to(end);
  EXPECT_TRUE(test::max_abs_diff(nll, whole) <= 1e-4) << test::max_abs_diff(nll, whole);
  EXPECT_EQ(context.certificate().keys, 0) << "nothing is lost";
}

TEST_P(WindowOf, ForkedAndRewoundContextsGiveTheBitsOfFreshOnes) {
  const LanguageModel model = windowed(GetParam(), 90);
  const Tensor ids = test::random_ids({1, 700}, 1, 257);
  Context context(model), fresh(model);
  for (Context* each : {&context, &fresh}) {
    model.next_logits(ids_of(ids, 0, 400), *each);
    for (int64_t i = 400; i < 600; ++i) model.next_logits(ids_of(ids, i, i + 1), *each);
  }
  const Tensor expected = model.next_logits(ids_of(ids, 600, 601), fresh);
  Context fork = context.fork();
  EXPECT_TRUE(test::same_bits(model.next_logits(ids_of(ids, 600, 601), fork), expected));
  EXPECT_TRUE(test::same_bits(model.next_logits(ids_of(ids, 600, 601), context), expected));
  context.rewind(600);
  EXPECT_TRUE(test::same_bits(model.next_logits(ids_of(ids, 600, 601), context), expected));
  EXPECT_THROW(context.rewind(10), Error) << "what it needs there was evicted";
  EXPECT_EQ(context.position(), 601);
  context.rewind(0);
  Context other(model);
  EXPECT_TRUE(
      test::same_bits(model.next_logits(ids_of(ids, 0, 400), context), model.next_logits(ids_of(ids, 0, 400), other)));
}

TEST(Window, WhatItHidesIsNoLossToACertificate) {
  const LanguageModel model = windowed(Position::alibi, 200);
  const Tensor ids = test::random_ids({1, 3000}, 1, 257), targets = test::random_ids({1, 3000}, 2, 257);
  Context all(model), enough(model, {.memory = 500 * windowed_layers * 2 * 2 * 16 * 4, .exact = true});
  for (int64_t begin = 0; begin < 3000; begin += 10) {
    const Tensor now = ids_of(ids, begin, begin + 10);
    const double apart = test::max_abs_diff(model.next_logits(now, enough), model.next_logits(now, all));
    ASSERT_TRUE(apart <= 1e-5) << begin << ": " << apart;
  }
  EXPECT_GT(enough.certificate().keys, 0);
  EXPECT_EQ(enough.certificate().worst, 0);
}

TEST(Window, TrainingFollowsTheSlopeOfItsLoss) {
  // Along the gradient the loss falls as the gradient's square says: it is that of the windowed model.
  LanguageModel model = windowed(Position::alibi, 8);
  const Tensor ids = test::random_ids({2, 60}, 1, 257), targets = test::random_ids({2, 60}, 2, 257);
  model.zero_gradients();
  const double before = model.accumulate_gradients(ids, targets, 1, {});
  double squares = 0;
  for (const Parameter* parameter : model.parameters()) {
    for (const float g : parameter->gradient.to_floats()) squares += static_cast<double>(g) * static_cast<double>(g);
  }
  const double step = 0.02 / squares * before / 100;  // the loss falls by 0.02 %
  const auto move = [&](double by) {
    for (Parameter* parameter : model.parameters()) {
      const std::vector<float> gradient = parameter->gradient.to_floats();
      for (size_t i = 0; i < gradient.size(); ++i)
        parameter->value.data<float>()[i] += static_cast<float>(by) * gradient[i];
    }
    model.weights_changed();
    double sum = 0;
    for (const float x : model.nll(ids, targets)) sum += static_cast<double>(x);
    return sum;
  };
  const double above = move(step), below = move(-2 * step);
  EXPECT_TRUE(std::abs((above - below) / (2 * step * squares) - 1) <= 0.02)
      << (above - below) / (2 * step) << " " << squares;
}

TEST(Window, IsSavedAndGeneratedWith) {
  const LanguageModel model = windowed(Position::alibi, 5);
  const test::TemporaryFolder folder;
  model.save(folder.path());
  const LanguageModel loaded = LanguageModel::load(folder.path());
  EXPECT_EQ(loaded.config().transformer.attention.sliding_window, 5);
  const GenerateOptions options{.max_tokens = 300, .seed = 2};
  const std::string text = loaded.generate("Call me", options);
  EXPECT_EQ(text, model.generate("Call me", options));
  EXPECT_NE(text, windowed(Position::alibi, 0).generate("Call me", options));
  // Without a cache: each token from the whole text.
  Context context(model);
  const Tensor ids = test::random_ids({1, 50}, 1, 257);
  for (int64_t i = 0; i < 50; ++i) {
    const Tensor logits = model.next_logits(ids_of(ids, i, i + 1), context);
    EXPECT_TRUE(test::max_abs_diff(logits, model.next_logits(ids_of(ids, 0, i + 1))) <= 1e-4) << i;
  }
}

TEST(Window, ANegativeOneIsRefused) {
  TransformerConfig config;
  config.attention.sliding_window = -1;
  test::expect_error<UsageError>([&] { config.validate(); }, "sliding_window is -1");
}

}  // namespace
}  // namespace alibi::model
