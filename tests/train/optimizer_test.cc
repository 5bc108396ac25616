#include "train/optimizer.h"

#include <gtest/gtest.h>

#include <cmath>

#include "testing.h"

namespace alibi::training {
namespace {

using test::random_tensor;

/// Two parameters of odd sizes, of which only the first decays.
std::vector<Parameter> parameters() {
  return {{"first", random_tensor({7, 5}, 1), random_tensor({7, 5}, 2), true},
          {"second", random_tensor({3}, 3), random_tensor({3}, 4), false}};
}

std::vector<Parameter*> pointers(std::vector<Parameter>& all) {
  std::vector<Parameter*> result;
  for (Parameter& parameter : all) result.push_back(&parameter);
  return result;
}

TEST(Clipping, LeavesSmallGradientsAndShrinksLargeOnes) {
  std::vector<Parameter> all = parameters();
  double sum = 0;
  for (const Parameter& parameter : all) {
    for (const double g : test::doubles(parameter.gradient)) sum += g * g;
  }
  const double norm = gradient_norm(pointers(all));
  EXPECT_TRUE(std::abs(norm - std::sqrt(sum)) <= 1e-12 * norm);
  EXPECT_EQ(clip_factor(0.05, 0.1), 1);
  EXPECT_EQ(clip_factor(1e9, 0), 1);
  EXPECT_NEAR(clip_factor(4, 0.1) * 4, 0.1, 1e-6);
  EXPECT_NEAR(clip_factor(1e-7, 1e-8), 1e-8 / 1.1e-6, 1e-12);  // 1e-6 is added to the norm, as PyTorch does
}

// fairseq's update, written out: the buffer follows the learning rate, the decay is of the parameter itself.
TEST(OptimizerState, NagFollowsTheDefinitionThroughWarmupAndClipping) {
  TrainOptions options;
  options.optimizer = Optimizer::nag;
  options.momentum = 0.9;
  options.weight_decay = 0.01;
  options.schedule_kind = ScheduleKind::fairseq;
  options.learning_rate = 0.1;
  options.warmup_from = 1e-4;
  options.warmup_steps = 5;
  options.floor = 0.01;
  options.train_tokens = 20;
  options.batch_tokens = 1;
  const Schedule schedule = options.schedule();
  std::vector<Parameter> all = parameters();
  OptimizerState optimizer(options, pointers(all));
  std::vector<std::vector<double>> weight, buffer;
  for (const Parameter& parameter : all) {
    weight.push_back(test::doubles(parameter.value));
    buffer.emplace_back(weight.back().size());
  }
  for (int64_t step = 0; step < 20; ++step) {
    const double rate = schedule.at(step), factor = step == 7 ? 0.25 : 1;
    const double follow = step == 0 ? 1 : rate / schedule.at(step - 1);
    for (size_t p = 0; p < all.size(); ++p) {
      all[p].gradient.copy_from(random_tensor(all[p].value.shape(), 100 + static_cast<uint64_t>(step) * 2 + p));
      const std::vector<double> gradient = test::doubles(all[p].gradient);
      for (size_t i = 0; i < gradient.size(); ++i) {
        const double g = factor * gradient[i];
        if (all[p].decays) weight[p][i] *= 1 - rate * options.weight_decay;
        weight[p][i] += options.momentum * options.momentum * follow * buffer[p][i] - (1 + options.momentum) * rate * g;
        buffer[p][i] = options.momentum * follow * buffer[p][i] - rate * g;
      }
    }
    optimizer.update(step, factor);
    for (size_t p = 0; p < all.size(); ++p) {
      ASSERT_TRUE(test::relative_diff(test::doubles(all[p].value), weight[p]) <= 1e-5) << "step " << step;
    }
  }
  const std::vector<formats::NamedTensor> state = optimizer.tensors();
  ASSERT_EQ(state.size(), 2u);
  EXPECT_EQ(state[1].name, "buffer.second");
  EXPECT_TRUE(test::relative_diff(test::doubles(state[1].tensor), buffer[1]) <= 1e-5);
}

TEST(OptimizerState, AdamWDecaysMatricesOnly) {
  TrainOptions options;
  options.weight_decay = 0.5;
  options.learning_rate = 0.1;
  options.schedule_kind = ScheduleKind::constant;
  options.warmup_steps = 0;
  std::vector<Parameter> all = parameters();
  const std::vector<double> before[] = {test::doubles(all[0].value), test::doubles(all[1].value)};
  for (Parameter& parameter : all) parameter.gradient.fill(0);
  OptimizerState optimizer(options, pointers(all));
  optimizer.update(0, 1);
  std::vector<double> decayed = before[0];
  for (double& value : decayed) value *= 0.95;
  EXPECT_TRUE(test::relative_diff(test::doubles(all[0].value), decayed) <= 1e-6);
  EXPECT_EQ(test::doubles(all[1].value), before[1]);
  EXPECT_EQ(optimizer.tensors().size(), 4u);
  EXPECT_EQ(optimizer.tensors()[0].name, "m.first");
}

TEST(OptimizerState, AParameterMayHaveAnotherRate) {
  for (const Optimizer kind : {Optimizer::adamw, Optimizer::nag}) {
    TrainOptions options;
    options.optimizer = kind;
    options.schedule_kind = ScheduleKind::constant;
    options.warmup_steps = 0;
    options.learning_rate = 0.004;
    std::vector<Parameter> all = parameters(), slow = parameters(), fast = parameters();
    all[1].rate_factor = 8;
    OptimizerState mixed(options, pointers(all)), at_rate(options, pointers(slow));
    options.learning_rate = 0.032;
    OptimizerState at_eightfold(options, pointers(fast));
    for (int64_t step = 0; step < 3; ++step) {
      for (OptimizerState* optimizer : {&mixed, &at_rate, &at_eightfold}) optimizer->update(step, 0.5);
    }
    EXPECT_TRUE(test::same_bits(all[0].value, slow[0].value)) << name_of(kind);
    EXPECT_TRUE(test::same_bits(all[1].value, fast[1].value)) << name_of(kind);
    const std::vector<formats::NamedTensor> found = mixed.tensors(), expected = at_eightfold.tensors();
    EXPECT_TRUE(test::same_bits(found[1].tensor, expected[1].tensor)) << found[1].name;
  }
}

TEST(OptimizerState, ItsTensorsAreAllItRemembers) {
  for (const Optimizer kind : {Optimizer::adamw, Optimizer::nag}) {
    TrainOptions options;
    options.optimizer = kind;
    std::vector<Parameter> all = parameters();
    OptimizerState first(options, pointers(all));
    for (int64_t step = 0; step < 3; ++step) first.update(step, 1);
    std::vector<Parameter> copy = parameters();
    OptimizerState second(options, pointers(copy));
    for (size_t i = 0; i < all.size(); ++i) copy[i].value.copy_from(all[i].value);
    std::vector<formats::NamedTensor> from = first.tensors(), to = second.tensors();
    for (size_t i = 0; i < from.size(); ++i) to[i].tensor.copy_from(from[i].tensor);
    first.update(3, 0.5);
    second.update(3, 0.5);
    for (size_t i = 0; i < all.size(); ++i) EXPECT_TRUE(test::same_bits(all[i].value, copy[i].value)) << name_of(kind);
  }
}

}  // namespace
}  // namespace alibi::training
