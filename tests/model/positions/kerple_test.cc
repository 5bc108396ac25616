// The formula of KERPLE's logarithmic bias. The tests of all models have the rest, its gradient among them.
#include <gtest/gtest.h>

#include <cmath>

#include "alibi/model_recipe.h"
#include "alibi/transformer.h"
#include "core/access.h"
#include "model/small_transformer.h"
#include "model/transformer_state.h"
#include "temporary_folder.h"
#include "testing.h"

namespace alibi::model {
namespace {

TEST(Kerple, TheBiasIsTheFormula) {
  for (const bool causal : {true, false}) {
    TransformerConfig config = test::small_transformer(position_from("kerple"));
    config.attention.causal = causal;
    Transformer model(config, 3);
    ASSERT_EQ(model.parameters()[0].name, "kerple.r1");
    model.parameters()[0].value.copy_from(Tensor::from(std::vector<float>{0.5f, 2, 0.001f}, {3}));
    model.parameters()[1].value.copy_from(Tensor::from(std::vector<float>{1, 0.25f, -3}, {3}));
    const Tensor table = *core::state_of(model).positions.bias->biases(5, 0.5f).front().bias_by_distance;
    ASSERT_EQ(table.shape(), (Shape{causal ? 5 : 9, 3}));
    const int64_t at = causal ? 3 : 1;  // distance 3, or -3, halved
    EXPECT_NEAR(table.data<float>()[at * 3 + 0], -0.5 * std::log(1 + 1.5), 1e-6);
    EXPECT_NEAR(table.data<float>()[at * 3 + 1], -2 * std::log(1 + 0.25 * 1.5), 1e-6);
    EXPECT_NEAR(table.data<float>()[at * 3 + 2], -0.01 * std::log(1 + 0.01 * 1.5), 1e-6);  // both kept above 0.01
    EXPECT_EQ(table.data<float>()[(causal ? 0 : 4) * 3], 0);
  }
}

TEST(Kerple, ItsRateFactorIsAFieldLikeOthers) {
  ModelRecipe recipe{.position = position_from("rotary+kerple")};
  const auto factor = [](const LanguageModelConfig& config) {
    return position_specs(config.transformer).front().rate_factor;
  };
  EXPECT_EQ(factor(recipe.config(16)), 8);
  recipe.options.set("kerple_rate_factor", 3);
  EXPECT_EQ(factor(recipe.config(16)), 3);
  test::expect_error<UsageError>([&] { recipe.options.set("kerple_rate_factor", -1.0); }, "expected 0 to 1000000");
  const test::TemporaryFolder folder;
  LanguageModel(recipe.config(16), 1).save(folder.path());
  EXPECT_EQ(factor(LanguageModel::load(folder.path()).config()), 3);
}

}  // namespace
}  // namespace alibi::model
