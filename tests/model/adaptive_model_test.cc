// Language models with adaptive input and softmax, all the way: loss, gradients, training, folders, text.
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <set>
#include <string>

#include "alibi/evaluate.h"
#include "alibi/train.h"
#include "core/files.h"
#include "positions.h"
#include "temporary_folder.h"
#include "testing.h"

namespace alibi::model {
namespace {

using test::doubles;
using test::expect_error;
using test::random_ids;

/// The WikiText-103 model in small: bytes, of which those below 100 are the first band.
LanguageModelConfig small_config(Position position = Position::alibi) {
  LanguageModelConfig config = with_vocab_size(preset("wikitext103"), 257);
  TransformerConfig& t = config.transformer;
  t.layers = 2;
  t.d_model = 32;
  t.attention.heads = 4;
  config.adaptive->cutoffs = {100, 180};
  return with_position(config, position, 16);
}

TEST(AdaptiveModel, LossIsMinusTheLogProbabilityAndThoseSumToOne) {
  for (const Position& position : test::position_cases()) {
    const LanguageModel model(small_config(position), 1);
    const Tensor ids = random_ids({2, 9}, 1, 257), targets = random_ids({2, 9}, 2, 257);
    const std::vector<float> log_p = model.logits(ids).to_floats(), nll = model.nll(ids, targets);
    for (size_t row = 0; row < 18; ++row) {
      double sum = 0;
      for (size_t v = 0; v < 257; ++v) sum += std::exp(static_cast<double>(log_p[row * 257 + v]));
      EXPECT_NEAR(sum, 1, 1e-5) << name_of(position);
      EXPECT_NEAR(nll[row], -log_p[row * 257 + static_cast<size_t>(targets.to_ints()[row])], 1e-5);
    }
    const Tensor next = model.next_logits(ids);
    EXPECT_EQ(next.shape(), (Shape{2, 257}));
    const std::vector<float> last = next.to_floats();
    for (size_t b = 0; b < 2; ++b) {
      for (size_t v = 0; v < 257; ++v) EXPECT_NEAR(last[b * 257 + v], log_p[(b * 9 + 8) * 257 + v], 1e-5);
    }
  }
}

TEST(AdaptiveModel, ASeedGivesTheSameWeightsInEveryVersion) {
  const LanguageModel model(small_config(), 1);
  // The last number of each, of the clusters in the first: each has random numbers of its own.
  const std::map<std::string, double> expected = {
      {"wte.bands.0.weight", -0.0043906318}, {"wte.bands.0.projection", -0.00457559759},
      {"wte.bands.1.weight", 0.735880733},   {"wte.bands.1.projection", -0.384811282},
      {"wte.bands.2.weight", -0.696957171},  {"wte.bands.2.projection", 0.330721498},
  };
  size_t found = 0;
  for (const Parameter* parameter : model.parameters()) {
    const auto entry = expected.find(parameter->name);
    if (entry == expected.end()) continue;
    EXPECT_NEAR(parameter->value.to_floats().back(), entry->second, 1e-6) << parameter->name;
    ++found;
  }
  EXPECT_EQ(found, expected.size());
}

TEST(AdaptiveModel, GradientsAreThoseOfTheLoss) {
  for (const Position position : {Position::alibi, Position::learned}) {
    LanguageModelConfig config = small_config(position);
    TransformerConfig& t = config.transformer;
    t.block.dropout = t.embedding.dropout = t.attention.dropout = t.block.activation_dropout =
        config.adaptive->dropout = 0;
    t.block.activation = Activation::gelu;  // differences stumble over the corner of relu
    LanguageModel model(config, 1);
    const Tensor ids = random_ids({2, 9}, 1, 257);
    Tensor targets = random_ids({2, 9}, 2, 257);
    targets.data<int32_t>()[3] = -1;
    model.zero_gradients();
    const double first = model.accumulate_gradients(ids, targets, 0.25f, {});
    const auto loss = [&] {
      double sum = 0;
      for (const float value : model.nll(ids, targets)) sum += static_cast<double>(value);
      return 0.25 * sum;
    };
    EXPECT_NEAR(0.25 * first, loss(), 1e-4);
    const std::vector<Parameter*> parameters = model.parameters();
    for (size_t p = 0; p < parameters.size(); ++p) {
      Tensor& value = parameters[p]->value;
      const Tensor original = value.clone(), direction = test::random_tensor(value.shape(), p);
      const float step = 1e-3f;
      const auto loss_at = [&](float by) {
        for (int64_t j = 0; j < value.elements(); ++j) {
          value.data<float>()[j] = original.data<float>()[j] + by * direction.data<float>()[j];
        }
        return loss();
      };
      const double found = (loss_at(step) - loss_at(-step)) / (2 * static_cast<double>(step));
      value.copy_from(original);
      const std::vector<double> gradient = doubles(parameters[p]->gradient);
      const double expected = test::dot(gradient, doubles(direction)), size = std::sqrt(test::dot(gradient, gradient));
      EXPECT_TRUE(std::abs(found - expected) <= 2e-2 * size + 5e-3)
          << parameters[p]->name << ": " << found << " " << expected;
      EXPECT_GT(size, 0) << parameters[p]->name;
    }
  }
}

TEST(AdaptiveModel, TrainsWithTheSameBitsAtAnyThreadCountAndLearns) {
  std::vector<int32_t> stream;  // a line that repeats: bytes of all bands
  for (int i = 0; i < 1000; ++i) stream.push_back((i * 37) % 251);
  TrainOptions options = training_defaults("wikitext103");
  options.train_length = 16;
  options.batch_tokens = options.micro_batch_tokens = 128;
  options.train_tokens = 128 * 60;
  options.learning_rate = 0.1;
  options.warmup_steps = 10;
  options.period = 50;
  test::expect_same_bits_at_any_thread_count([&] {
    LanguageModel model(small_config(), 3);
    const double before = evaluate(model, stream, {.length = 16}).nll();
    const TrainResult result = train(model, stream, options);
    EXPECT_LT(evaluate(model, stream, {.length = 16}).nll(), before - 0.5);
    std::vector<Tensor> results{Tensor::from(result.loss, {static_cast<int64_t>(result.loss.size())})};
    for (const Parameter* parameter : model.parameters()) results.push_back(parameter->value);
    return results;
  });
}

TEST(AdaptiveModel, MixedPrecisionStaysNearFloat32) {
  LanguageModel model(small_config(), 3);
  const Tensor ids = random_ids({2, 30}, 1, 257), targets = random_ids({2, 30}, 2, 257);
  const std::vector<float> expected = model.nll(ids, targets);
  model.set_precision(Precision::bf16);
  const std::vector<float> found = model.nll(ids, targets);
  EXPECT_NE(found, expected);
  EXPECT_TRUE(test::max_abs_diff(found, expected) <= 0.25) << test::max_abs_diff(found, expected);
  const std::vector<float> next = model.next_logits(ids).to_floats(), all = model.logits(ids).to_floats();
  const std::vector<float> last(all.begin() + 29 * 257, all.begin() + 30 * 257);
  EXPECT_TRUE(test::max_abs_diff(std::vector<float>(next.begin(), next.begin() + 257), last) <= 1e-5);
  double sum = 0, sum_expected = 0;
  for (size_t i = 0; i < found.size(); ++i) sum += found[i], sum_expected += expected[i];
  EXPECT_NEAR(sum, sum_expected, 5e-3 * sum_expected);

  const auto gradients_of = [&](Precision precision) {
    model.set_precision(precision);
    model.release_training_memory();
    model.zero_gradients();
    model.accumulate_gradients(ids, targets, 1.0f / 60, {1, 2, 3});
    std::vector<std::vector<double>> gradients;
    for (const Parameter* parameter : model.parameters()) gradients.push_back(doubles(parameter->gradient));
    return gradients;
  };
  const auto wide = gradients_of(Precision::f32), narrow = gradients_of(Precision::bf16);
  for (size_t p = 0; p < wide.size(); ++p) {
    const double cosine =
        test::dot(wide[p], narrow[p]) / std::sqrt(test::dot(wide[p], wide[p]) * test::dot(narrow[p], narrow[p]));
    EXPECT_GT(cosine, 0.99) << model.parameters()[p]->name;
  }
  // The copies follow the weights.
  for (Parameter* parameter : model.parameters()) parameter->value.fill(0);
  model.weights_changed();
  EXPECT_NEAR(model.nll(ids, Tensor({2, 30}, DType::int32))[0], std::log(102.0), 1e-5);  // 100 words and 2 bands
}

TEST(AdaptiveModel, ASavedModelIsTheSameModelToTheBit) {
  for (const Position& position : test::position_cases()) {
    const test::TemporaryFolder folder;
    const LanguageModel model(small_config(position), 9);
    model.save(folder.path());
    const LanguageModel loaded = LanguageModel::load(folder.path());
    const LanguageModelConfig& config = loaded.config();
    EXPECT_EQ(config.transformer.position, position);
    ASSERT_TRUE(config.adaptive.has_value());
    EXPECT_EQ(config.adaptive->cutoffs, (std::vector<int64_t>{100, 180}));
    EXPECT_EQ(config.adaptive->factor, 4);
    EXPECT_EQ(config.adaptive->dropout, 0.2f);
    EXPECT_EQ(config.transformer.head.final_norm, false);
    EXPECT_EQ(config.transformer.embedding.dropout, 0.3f);
    EXPECT_EQ(config.transformer.block.activation_dropout, 0.1f);
    EXPECT_EQ(config.transformer.embedding.scale, std::sqrt(32.0f));
    EXPECT_EQ(loaded.parameter_count(), config.parameter_count());
    const std::vector<int32_t> stream = random_ids({200}, 4, 256).to_ints();
    const EvaluateOptions options{.length = 16, .stride = 5};
    EXPECT_EQ(evaluate(model, stream, options).nll_sum, evaluate(loaded, stream, options).nll_sum);
    if (position == Position::learned) continue;  // cannot run past its table
    const GenerateOptions sampling{.max_tokens = 40, .seed = 4};
    EXPECT_EQ(model.generate("So", sampling), loaded.generate("So", sampling));
    EXPECT_GT(evaluate(model, stream, {.length = 64}).nll_sum, 0);
  }
}

TEST(AdaptiveModel, SamplesFromAllBands) {
  const LanguageModel model(small_config(), 9);
  std::set<size_t> bands;
  for (const char c : model.generate("a", {.max_tokens = 200, .seed = 1})) {
    const int id = static_cast<unsigned char>(c);
    bands.insert(id < 100 ? 0u : id < 180 ? 1u : 2u);
  }
  EXPECT_EQ(bands.size(), 3u);
}

TEST(AdaptiveModel, DamagedFoldersAreRefusedWithTheFileAndTheReason) {
  const test::TemporaryFolder folder;
  LanguageModel(small_config(), 9).save(folder.path());
  const std::string config = core::read_file(folder.path() / "config.json");
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string changed = config;
    const size_t at = changed.find(from);
    EXPECT_NE(at, std::string::npos) << from;
    core::write_file(folder.path() / "config.json", changed.replace(at, from.size(), to));
    return test::message_of([&] { LanguageModel::load(folder.path()); });
  };
  const auto expect_says = [](const std::string& message, const std::string& part) {
    EXPECT_NE(message.find(part), std::string::npos) << message;
  };
  expect_says(with("180", "90"), "cutoffs are 100, 90");
  expect_says(with("180", "300"), "cutoffs are 100, 300");
  expect_says(with("180", "\"x\""), "cutoffs");
  expect_says(with("180", "190"), "wte.bands.1.weight");
  expect_says(with("\"factor\": 4", "\"factor\": 2"), "wte.bands.1");
  expect_says(with("\"factor\": 4", "\"factor\": 0"), "factor");
  expect_says(with("\"factor\": 4", "\"factor\": 1000"), "no width");
  expect_says(with("\"factor\": 4,", ""), "factor");
  expect_says(with("\"adaptive\"", "\"adaptiv\""), "alibi.adaptiv is unknown");
  expect_says(with("\"final_norm\": false", "\"final_norm\": true"), "norm_f");
  expect_says(with("\"vocab_size\": 257", "\"vocab_size\": 258"), "wte.bands.2.weight");
}

TEST(AdaptiveModel, IdsAndTargetsOutsideTheVocabularyAreNamed) {
  const LanguageModel model(small_config(), 1);
  Tensor ids = random_ids({1, 4}, 1, 257), targets = random_ids({1, 4}, 1, 257);
  targets.data<int32_t>()[1] = 257;
  expect_error([&] { model.nll(ids, targets); }, "target 257 at row 1");
  ids.data<int32_t>()[2] = 300;
  expect_error([&] { model.logits(ids); }, "id 300 at row 2");
}

}  // namespace
}  // namespace alibi::model
