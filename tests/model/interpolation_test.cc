// Position interpolation: slopes times trained length / length, in every way that a model reads.
#include <gtest/gtest.h>

#include <vector>

#include "alibi/attention.h"
#include "alibi/context.h"
#include "alibi/evaluate.h"
#include "alibi/evaluate_stream.h"
#include "alibi/generate.h"
#include "alibi/language_model.h"
#include "small_config.h"
#include "temporary_folder.h"
#include "testing.h"

namespace alibi::model {
namespace {

constexpr int64_t kTrained = 16;

LanguageModelConfig interpolated_config(SlopeTraining training = SlopeTraining::fixed) {
  LanguageModelConfig config = with_position(test::small_config(), Position::alibi, kTrained);
  config.transformer.attention.slope_training = training;
  return config;
}

/// The same weights with slopes divided by a power of two, which rounds nothing.
LanguageModel with_flatter_slopes(double factor) {
  LanguageModelConfig config = interpolated_config();
  config.transformer.attention.alibi_slopes = slopes(config.transformer.attention.heads);
  for (float& slope : config.transformer.attention.alibi_slopes) slope /= static_cast<float>(factor);
  return LanguageModel(config, 3);
}

std::vector<int32_t> words(int64_t count) {
  std::vector<int32_t> ids;
  for (int64_t i = 0; i < count; ++i) ids.push_back(static_cast<int32_t>((i * i + 3 * i) % 256));
  return ids;
}

Tensor ids_of(int64_t count) { return Tensor::from(words(count), {1, count}); }

TEST(Interpolation, IsAModelWithFlatterSlopes) {
  LanguageModel model(interpolated_config(), 3);
  const Tensor ids = ids_of(48), plain = model.logits(ids);
  model.set_interpolation({.factor = 4});
  EXPECT_TRUE(test::same_bits(model.logits(ids), with_flatter_slopes(4).logits(ids)));
  EXPECT_FALSE(test::same_bits(model.logits(ids), plain));
  model.set_interpolation({});
  EXPECT_TRUE(test::same_bits(model.logits(ids), plain));
}

TEST(Interpolation, FollowsTheLengthBeyondTheTrainedOne) {
  LanguageModel model(interpolated_config(), 3);
  LanguageModel dynamic(interpolated_config(), 3);
  dynamic.set_interpolation({.dynamic = true});
  for (const int64_t length : {int64_t{1}, kTrained - 1, kTrained}) {
    EXPECT_TRUE(test::same_bits(dynamic.logits(ids_of(length)), model.logits(ids_of(length)))) << length;
  }
  for (const int64_t times : {2, 8}) {
    const Tensor ids = ids_of(times * kTrained);
    EXPECT_TRUE(test::same_bits(dynamic.logits(ids), with_flatter_slopes(static_cast<double>(times)).logits(ids)));
  }
  // In windows each has the length that it has; the text of an evaluation in one pass grows.
  const std::vector<int32_t> text = words(4 * kTrained);
  EXPECT_EQ(evaluate(dynamic, text, {.length = 2 * kTrained}).nll_sum,
            evaluate(with_flatter_slopes(2), text, {.length = 2 * kTrained}).nll_sum);
  EXPECT_EQ(evaluate_stream(dynamic, text).nll_sum, evaluate_stream(with_flatter_slopes(4), text).nll_sum);
}

TEST(Interpolation, OfContextsIsThatOfTheWhole) {
  for (const SlopeTraining training : {SlopeTraining::fixed, SlopeTraining::learned_random}) {
    LanguageModel model(interpolated_config(training), 3);
    const Tensor ids = ids_of(40);
    const Tensor plain = model.next_logits(ids);
    model.set_interpolation({.factor = 3});
    Context context(model);
    for (int64_t at = 0; at < 39; ++at) model.hidden(ids.slice(1, at, at + 1).clone(), context);
    const Tensor last = model.next_logits(ids.slice(1, 39, 40).clone(), context);
    EXPECT_TRUE(test::max_abs_diff(last, model.next_logits(ids)) <= 1e-4);
    EXPECT_FALSE(test::max_abs_diff(last, plain) <= 1e-3);
    // A text that is read in one call has its length in a context too.
    model.set_interpolation({.dynamic = true});
    Context whole(model);
    EXPECT_TRUE(test::max_abs_diff(model.next_logits(ids, whole), model.next_logits(ids)) <= 1e-4);
  }
}

TEST(Interpolation, OfRotaryPositionsDividesThem) {
  LanguageModel model(with_position(interpolated_config(), Position::rotary, kTrained), 3);
  const Tensor ids = ids_of(2 * kTrained), plain = model.logits(ids);
  model.set_interpolation({.factor = 2});
  const Tensor divided = model.logits(ids);
  EXPECT_FALSE(test::max_abs_diff(divided, plain) <= 1e-3);
  Context context(model);
  for (int64_t at = 0; at + 1 < 2 * kTrained; ++at) model.hidden(ids.slice(1, at, at + 1).clone(), context);
  const Tensor last_id = ids.slice(1, 2 * kTrained - 1, 2 * kTrained).clone();
  EXPECT_TRUE(test::max_abs_diff(model.next_logits(last_id, context), model.next_logits(ids)) <= 1e-4);

  // If all positions are almost 0, the model is one without positions. This fails if only queries or keys are scaled.
  model.set_interpolation({.factor = 1e6});
  const LanguageModel none(with_position(interpolated_config(), Position::none, kTrained), 3);
  EXPECT_TRUE(test::max_abs_diff(model.logits(ids), none.logits(ids)) <= 1e-4);
  EXPECT_FALSE(test::max_abs_diff(plain, none.logits(ids)) <= 1e-3);

  model.set_interpolation({.dynamic = true});
  EXPECT_TRUE(test::same_bits(model.logits(ids), divided));
  Context grows(model);
  model.hidden(ids, grows);
  test::expect_error<UsageError>([&] { model.hidden(last_id, grows); }, "give a factor");
  model.set_interpolation({});
  EXPECT_TRUE(test::same_bits(model.logits(ids), plain));
}

TEST(Interpolation, OfRotaryPositionsMayDifferByDimension) {
  LanguageModel model(with_position(interpolated_config(), position_from("rotary+alibi"), kTrained), 3);
  const Tensor ids = ids_of(2 * kTrained), plain = model.logits(ids);
  model.set_interpolation({.factor = 2});
  const Tensor divided = model.logits(ids);
  for (const RotaryScaling rotary : {RotaryScaling::ntk, RotaryScaling::yarn}) {
    model.set_interpolation({.factor = 2, .rotary = rotary});
    const Tensor scaled = model.logits(ids);
    EXPECT_FALSE(test::max_abs_diff(scaled, plain) <= 1e-3);
    EXPECT_FALSE(test::max_abs_diff(scaled, divided) <= 1e-3);
    Context context(model);
    for (int64_t at = 0; at + 1 < 2 * kTrained; ++at) model.hidden(ids.slice(1, at, at + 1).clone(), context);
    const Tensor last_id = ids.slice(1, 2 * kTrained - 1, 2 * kTrained).clone();
    EXPECT_TRUE(test::max_abs_diff(model.next_logits(last_id, context), model.next_logits(ids)) <= 1e-4);
    model.set_interpolation({.dynamic = true, .rotary = rotary});
    EXPECT_TRUE(test::same_bits(model.logits(ids), scaled));
  }
  LanguageModel alibi(interpolated_config(), 3);
  test::expect_error<UsageError>([&] { alibi.set_interpolation({.factor = 2, .rotary = RotaryScaling::ntk}); },
                                 "expected rotary ones");
}

TEST(Interpolation, IsOfReadingNotOfTrainingOrTheSavedModel) {
  LanguageModel model(interpolated_config(), 3), other(interpolated_config(), 3);
  model.set_interpolation({.factor = 4});
  const Tensor ids = ids_of(48);
  for (LanguageModel* each : {&model, &other}) {
    each->zero_gradients();
    each->accumulate_gradients(ids, ids, 1, {});
  }
  for (size_t i = 0; i < model.parameters().size(); ++i) {
    EXPECT_TRUE(test::same_bits(model.parameters()[i]->gradient, other.parameters()[i]->gradient));
  }
  const test::TemporaryFolder folder;
  model.save(folder.path());
  EXPECT_EQ(LanguageModel::load(folder.path()).interpolation().factor, 1);
}

TEST(Interpolation, WhatCannotBeIsRefused) {
  LanguageModel model(interpolated_config(), 3);
  for (const double factor : {0.0, -1.0, HUGE_VAL, double{NAN}}) {
    test::expect_error<UsageError>([&] { model.set_interpolation({.factor = factor}); }, "factor");
  }
  model.set_train_length(0);
  test::expect_error<UsageError>([&] { model.set_interpolation({.dynamic = true}); }, "give a factor");
  LanguageModel sinusoidal(with_position(interpolated_config(), Position::sinusoidal, kTrained), 3);
  test::expect_error<UsageError>([&] { sinusoidal.set_interpolation({.factor = 2}); }, "sinusoidal positions");
  EXPECT_NO_THROW(sinusoidal.set_interpolation({}));
}

}  // namespace
}  // namespace alibi::model
