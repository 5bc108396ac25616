// 20 updates whose losses and gradient norms are those of the same model in PyTorch's float64. The numbers, and the
// script that made them, are in golden/.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <limits>
#include <nlohmann/json.hpp>

#include "alibi/train.h"
#include "core/random.h"
#include "formats/json.h"
#include "formats/safetensors.h"
#include "shared_data.h"
#include "train/batches.h"
#include "train/small_run.h"

namespace alibi::training {
namespace {

constexpr int64_t kSteps = 20;

/// Every part of an update matters: the rate rises and falls, half of the gradients are clipped, weights decay, a batch
/// is more than one part.
TrainOptions golden_options() {
  TrainOptions options;
  options.train_length = 48;
  options.batch_tokens = 4 * 48;
  options.micro_batch_tokens = 2 * 48;
  options.train_tokens = kSteps * options.batch_tokens;
  options.learning_rate = 4e-3;
  options.warmup_steps = 5;
  options.weight_decay = 0.5;
  options.beta1 = 0.85;
  options.beta2 = 0.95;
  options.clip = 1.4;
  options.seed = 3;
  return options;
}

LanguageModel golden_model(Position position) {
  LanguageModelConfig config = test::small_config();
  config.transformer.attention.t5_buckets = 16;
  config.transformer.attention.t5_max_distance = 40;
  config.transformer.attention.t5_rate_factor = 1;  // make_golden.py has one rate for all
  return LanguageModel(with_position(config, position, golden_options().train_length), 11);
}

/// Each token follows from the one before, up to noise: there is something to learn, and all tokens occur.
std::vector<int32_t> golden_stream() {
  const core::Random random(17);
  std::vector<int32_t> tokens(48 * 4 * kSteps);
  int64_t token = 1;
  for (size_t i = 0; i < tokens.size(); ++i) {
    token = (3 * token + static_cast<int64_t>(random.below(i, 5))) % 257;
    tokens[i] = static_cast<int32_t>(token);
  }
  return tokens;
}

/// Tells other weights from those that the numbers belong to.
struct Fingerprint {
  double sum = 0, squares = 0;
};
Fingerprint fingerprint_of(const LanguageModel& model) {
  Fingerprint result;
  for (const Parameter* parameter : model.parameters()) {
    for (const float value : parameter->value.to_floats()) {
      result.sum += static_cast<double>(value);
      result.squares += static_cast<double>(value) * static_cast<double>(value);
    }
  }
  return result;
}

/// What make_golden.py reads: the model before training, its batches and the options.
void export_run(const std::filesystem::path& folder, Position position) {
  const TrainOptions options = golden_options();
  const std::vector<int32_t> tokens = golden_stream();
  const LanguageModel model = golden_model(position);
  model.save(folder);
  BlockOrder order(tokens, options.train_length, model.tokenizer().end_of_text(), options.seed);
  const int64_t count = blocks_per_update(options);
  std::vector<formats::NamedTensor> tensors;
  for (int64_t step = 0; step < options.steps(); ++step) {
    std::vector<int64_t> blocks;
    for (int64_t i = 0; i < count; ++i) blocks.push_back(order.block_at(step * count + i));
    const Batch batch = order.batch(blocks);
    tensors.push_back({"ids." + std::to_string(step), batch.ids});
    tensors.push_back({"targets." + std::to_string(step), batch.targets});
  }
  formats::write_safetensors(folder / "batches.safetensors", tensors);
  formats::write_json(folder / "options.json", {{"steps", options.steps()},
                                                {"learning_rate", options.learning_rate},
                                                {"warmup_steps", options.warmup_steps},
                                                {"final_fraction", options.final_fraction},
                                                {"weight_decay", options.weight_decay},
                                                {"beta1", options.beta1},
                                                {"beta2", options.beta2},
                                                {"eps", options.eps},
                                                {"clip", options.clip}});
}

/// Largest |found - expected| / expected; infinity if anything is not a number.
double worst_relative(const std::vector<double>& found, const std::vector<double>& expected) {
  double worst = found.size() == expected.size() && !found.empty() ? 0 : std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < std::min(found.size(), expected.size()); ++i) {
    const double difference = std::abs(found[i] - expected[i]) / std::abs(expected[i]);
    if (!(difference <= worst)) worst = std::isnan(difference) ? std::numeric_limits<double>::infinity() : difference;
  }
  return worst;
}

/// Found when they were made, on AVX-512 and scalar: 2e-8 and 1e-7 in float32, 3e-4 and 2e-3 in bfloat16.
struct Tolerance {
  double loss, norm;
};

class GoldenRun : public testing::TestWithParam<Position> {
 protected:
  void SetUp() override {
    if (const char* folder = std::getenv("ALIBI_EXPORT_GOLDEN")) {
      export_run(std::filesystem::path(folder) / name_of(GetParam()), GetParam());
      GTEST_SKIP() << "wrote the run to " << folder;
    }
    const formats::Json all = formats::read_json_object(test::test_sources() / "train/golden/golden.json").raw();
    expected_ = all.at("runs").at(name_of(GetParam()));
    const Fingerprint found = fingerprint_of(golden_model(GetParam()));
    constexpr double kLastBits = 1e-4;  // of all weights: another math library may round some otherwise
    const formats::Json& weights = expected_.at("weights");
    ASSERT_TRUE(std::abs(found.sum - weights.at("sum").get<double>()) <= kLastBits &&
                std::abs(found.squares - weights.at("sum_of_squares").get<double>()) <= kLastBits)
        << "models start with other weights than when the numbers were made: run make_golden.py again";
  }

  void expect_golden(Precision precision, const Tolerance& tolerance) const {
    TrainOptions options = golden_options();
    options.precision = precision;
    LanguageModel model = golden_model(GetParam());
    std::vector<double> losses, norms;
    train(model, golden_stream(), options, [&](const TrainStatus& status) {
      losses.push_back(status.loss);
      norms.push_back(status.gradient_norm);
    });
    ASSERT_EQ(losses.size(), static_cast<size_t>(kSteps));
    EXPECT_LE(worst_relative(losses, expected_.at("loss").get<std::vector<double>>()), tolerance.loss);
    EXPECT_LE(worst_relative(norms, expected_.at("gradient_norm").get<std::vector<double>>()), tolerance.norm);
  }

  formats::Json expected_;
};

TEST_P(GoldenRun, Float32) { expect_golden(Precision::f32, {.loss = 1e-6, .norm = 1e-5}); }
TEST_P(GoldenRun, Bfloat16) { expect_golden(Precision::bf16, {.loss = 2e-3, .norm = 1e-2}); }

INSTANTIATE_TEST_SUITE_P(, GoldenRun, testing::Values(Position::alibi, Position::rotary, Position::t5),
                         [](const auto& test) { return name_of(test.param); });

}  // namespace
}  // namespace alibi::training
