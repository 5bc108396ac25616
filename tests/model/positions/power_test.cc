// The formula of the power of the distance. The tests of all models have the rest, its gradient among them.
#include <gtest/gtest.h>

#include <cmath>

#include "alibi/transformer.h"
#include "core/access.h"
#include "model/small_transformer.h"
#include "model/transformer_state.h"
#include "testing.h"

namespace alibi::model {
namespace {

TEST(Power, TheBiasIsTheFormula) {
  Transformer model(test::small_transformer(position_from("power")), 3);
  ASSERT_EQ(model.parameters()[0].name, "power.r1");
  model.parameters()[0].value.copy_from(Tensor::from(std::vector<float>{0.5f, 2, 0.001f}, {3}));
  model.parameters()[1].value.copy_from(Tensor::from(std::vector<float>{1, 0.25f, 3}, {3}));
  const Tensor table = *core::state_of(model).positions.bias->biases(5, 0.5f).front().bias_by_distance;
  ASSERT_EQ(table.shape(), (Shape{5, 3}));
  const float* const row = table.data<float>() + 3 * 3;  // distance 3, halved
  EXPECT_NEAR(row[0], -0.5 * 1.5, 1e-6);
  EXPECT_NEAR(row[1], -2 * std::pow(1.5, 0.25), 1e-6);
  EXPECT_NEAR(row[2], -0.01 * std::pow(1.5, 2), 1e-6);  // r1 is kept above 0.01, r2 below 2
  for (int64_t h = 0; h < 3; ++h) EXPECT_EQ(table.data<float>()[h], 0);
}

}  // namespace
}  // namespace alibi::model
