// Tensors and operators on a device whose memory the program cannot see.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "alibi/alibi.h"
#include "device/fake_device.h"
#include "temporary_folder.h"
#include "testing.h"

namespace alibi::test {
namespace {

TEST(Device, IsRefusedWhereTheBuildLacksIt) {
  if (core::device_memories().of(Device::cuda) != nullptr) GTEST_SKIP() << "this build has it";
  try {
    Tensor({2}, DType::float32, Device::cuda);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("has no device 'cuda'; configure it with -DALIBI_CUDA=ON"),
              std::string::npos)
        << error.what();
  }
}

TEST(Device, TensorsGoThereAndBack) {
  const FakeDevice device;
  const Tensor here = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
  Tensor there = here.to(Device::cuda);
  EXPECT_EQ(there.device(), Device::cuda);
  EXPECT_EQ(there.to_floats(), here.to_floats());
  EXPECT_THROW(there.data<float>(), Error);
  // Strides and types change on either side.
  EXPECT_EQ(there.slice(1, 1, 3).to_floats(), (std::vector<float>{2, 3, 5, 6}));
  EXPECT_EQ(there.to(DType::bfloat16).to(Device::cpu).to_floats(), here.to_floats());
  Tensor part = there.slice(1, 0, 2);
  part.copy_from(Tensor::from(std::vector<float>{7, 8, 9, 10}, {2, 2}));
  EXPECT_EQ(there.to_floats(), (std::vector<float>{7, 8, 3, 9, 10, 6}));
  part.fill(0);
  EXPECT_EQ(there.to_floats(), (std::vector<float>{0, 0, 3, 0, 0, 6}));
  Tensor back = Tensor({3, 2}).slice(1, 0, 1);
  back.copy_from(there.slice(0, 0, 1).reshape({3, 1}));
  EXPECT_EQ(back.to_floats(), (std::vector<float>{0, 0, 3}));
  EXPECT_EQ(Tensor({2}, DType::float32, Device::cuda).to_floats(), (std::vector<float>{0, 0}));
}

TEST(Device, MemoryOfOtherProgramsIsSeenThere) {
  const FakeDevice device;
  const Tensor owned = Tensor::from(std::vector<float>{1, 2, 3, 4}, {2, 2}).to(Device::cuda);
  const Tensor seen = Tensor::view(owned.raw(), {2, 1}, DType::float32, {2, 1}, Device::cuda);
  EXPECT_EQ(seen.device(), Device::cuda);
  EXPECT_EQ(seen.to_floats(), (std::vector<float>{1, 3}));
}

TEST(Device, OperatorsRunThereToTheSameBits) {
  const FakeDevice device;
  const Tensor x = random_tensor({5, 8}, 1), weight = random_tensor({4, 8}, 2), bias = random_tensor({4}, 3);
  Tensor y({5, 4}), y_there({5, 4}, DType::float32, Device::cuda);
  nn::linear(x, weight, &bias, y);
  const Tensor bias_there = bias.to(Device::cuda);
  const int64_t before = FakeDevice::calls();
  nn::linear(x.to(Device::cuda), weight.to(Device::cuda), &bias_there, y_there);
  EXPECT_EQ(FakeDevice::calls(), before + 1);
  EXPECT_EQ(y_there.to_floats(), y.to_floats());
}

TEST(Device, OperandsOfTwoDevicesAreRefused) {
  const FakeDevice device;
  const Tensor x({5, 8}), weight({4, 8});
  const Tensor bias = Tensor({4}).to(Device::cuda);
  Tensor y({5, 4});
  EXPECT_THROW(nn::linear(x.to(Device::cuda), weight, nullptr, y), Error);
  EXPECT_THROW(nn::linear(x, weight, &bias, y), Error);
}

TEST(Device, WhatItLacksIsAnError) {
  const FakeDevice device;
  static const nn::Operators none;
  const nn::Operators* const all = nn::device_operators().set(Device::cuda, &none);
  Tensor y = Tensor({4}).to(Device::cuda);
  EXPECT_THROW(nn::add(y, y, y), Error);
  nn::device_operators().set(Device::cuda, all);
  EXPECT_NO_THROW(nn::add(y, y, y));
}

/// A new operator must be given to the fake device too, which then shows whether models get by with what is there.
TEST(Device, TheFakeOneHasEveryOperator) {
  const FakeDevice device;
  const nn::Operators* const operators = nn::device_operators().of(Device::cuda);
  const auto* const pointers = reinterpret_cast<void* const*>(operators);
  for (size_t i = 0; i < sizeof(nn::Operators) / sizeof(void*); ++i)
    EXPECT_NE(pointers[i], nullptr) << "operator " << i;
}

TEST(Device, AttentionAndItsGradientsRunThereToTheSameBits) {
  const FakeDevice device;
  const Shape shape{2, 70, 4, 16};
  const Tensor q = random_tensor(shape, 1), k = random_tensor(shape, 2), v = random_tensor(shape, 3);
  const Tensor dout = random_tensor(shape, 4);
  AttentionOptions options;
  options.alibi_slopes = slopes(4);
  options.tolerance = 1e-3f;
  const auto run = [&](Device where) {
    const auto there = [&](const Tensor& tensor) { return tensor.to(where); };
    AttentionState state;
    const Tensor out = attention(there(q), there(k), there(v), options, &state);
    Tensor dq(shape, DType::float32, where), dk = dq.clone(), dv = dq.clone(), dslopes({4}, DType::float32, where);
    attention_backward(there(dout), there(q), there(k), there(v), out, state, options, dq, dk, dv,
                       {.dtable = nullptr, .dslopes = &dslopes});
    std::vector<std::vector<float>> all;
    for (const Tensor* result : std::initializer_list<const Tensor*>{&out, &state.lse, &dq, &dk, &dv, &dslopes})
      all.push_back(result->to_floats());
    return std::pair(all, state.stats.blocks_visited);
  };
  EXPECT_EQ(run(Device::cuda), run(Device::cpu));
  Tensor out(shape);
  EXPECT_THROW(attention(q.to(Device::cuda), k, v, options, out), Error);
}

/// Every way into a model, for every position method: what goes around the operators would end the program here.
class DeviceModel : public ::testing::TestWithParam<Position> {};
INSTANTIATE_TEST_SUITE_P(Positions, DeviceModel,
                         ::testing::Values(Position::alibi, Position::sinusoidal, Position::rotary, Position::t5,
                                           Position::learned, Position::none),
                         [](const auto& parameter) { return name_of(parameter.param); });

struct Results {
  std::vector<double> losses;
  std::vector<float> nll, logits;
  std::string text;
};

/// Training with every kind of dropout, saving and loading, evaluation and generation.
Results results_on(Device where, const LanguageModelConfig& config, Precision precision, bool recompute,
                   Optimizer optimizer) {
  const TemporaryFolder folder;
  LanguageModel model(config, 5);
  model.to(where);
  model.set_precision(precision);
  model.set_recompute(recompute);
  std::vector<int32_t> tokens;
  for (int i = 0; i < 4 * 2 * 24 + 1; ++i) tokens.push_back((i * 7 + i / 5) % 250);
  TrainOptions options;
  options.train_length = 24;
  options.batch_tokens = options.micro_batch_tokens = 2 * 24;
  options.train_tokens = 4 * options.batch_tokens;
  options.optimizer = optimizer;
  options.weight_decay = 0.1;
  options.clip = 0.5;
  options.precision = precision;
  options.recompute = recompute;
  Results results;
  train(model, tokens, options, [&](const TrainStatus& status) { results.losses.push_back(status.loss); });
  EXPECT_EQ(model.device(), where);
  model.save(folder / "model");
  LanguageModel loaded = LanguageModel::load(folder / "model");
  loaded.to(where);
  const Tensor ids = Tensor::from(std::span<const int32_t>(tokens).first(24), {1, 24});
  const Tensor targets = Tensor::from(std::span<const int32_t>(tokens).subspan(1, 24), {1, 24});
  results.nll = loaded.nll(ids, targets);
  results.logits = loaded.logits(ids).to_floats();
  results.text = loaded.generate("abc", {.max_tokens = 8});
  return results;
}

void expect_same(const Results& found, const Results& expected) {
  EXPECT_EQ(found.losses, expected.losses);
  EXPECT_EQ(found.nll, expected.nll);
  EXPECT_EQ(found.logits, expected.logits);
  EXPECT_EQ(found.text, expected.text);
}

LanguageModelConfig small_config(Position position) {
  LanguageModelConfig config = with_position(preset("tiny"), position, 24);
  config.transformer.layers = 2;
  config.transformer.d_model = 32;
  config.transformer.block.dropout = config.transformer.attention.dropout = 0.1f;
  config.transformer.block.activation_dropout = config.transformer.embedding.dropout = 0.1f;
  return config;
}

TEST_P(DeviceModel, TrainsAndRunsThereToTheSameBits) {
  const FakeDevice device;
  const LanguageModelConfig config = small_config(GetParam());
  const auto on = [&](Device where) {
    return results_on(where, config, Precision::f32, GetParam() == Position::t5, Optimizer::adamw);
  };
  const int64_t before = FakeDevice::calls();
  const Results found = on(Device::cuda);
  EXPECT_GT(FakeDevice::calls(), before + 100);
  expect_same(found, on(Device::cpu));
}

TEST(Device, SlopesAreLearnedThereToTheSameBits) {
  const FakeDevice device;
  LanguageModelConfig config = small_config(Position::alibi);
  config.transformer.attention.slope_training = SlopeTraining::learned_random;
  const auto on = [&](Device where) { return results_on(where, config, Precision::f32, false, Optimizer::adamw); };
  expect_same(on(Device::cuda), on(Device::cpu));
}

TEST(Device, ModelsInBfloat16AndOfBandsTrainThereToTheSameBits) {
  const FakeDevice device;
  LanguageModelConfig config = small_config(Position::alibi);
  config.transformer.block.activation = Activation::swiglu;
  config.transformer.block.norm = Norm::rms_norm;
  config.adaptive = AdaptiveConfig{.cutoffs = {20, 100}, .factor = 2, .dropout = 0.1f};
  const auto on = [&](Device where) { return results_on(where, config, Precision::bf16, true, Optimizer::nag); };
  expect_same(on(Device::cuda), on(Device::cpu));
}

}  // namespace
}  // namespace alibi::test
