#include "alibi/layer_states.h"

#include <gtest/gtest.h>

#include <map>
#include <numeric>

#include "small_config.h"
#include "testing.h"

namespace alibi::evaluation {
namespace {

LanguageModel model_of(int layers, Residual residual) {
  LanguageModelConfig config = test::small_config(layers);
  config.transformer.block.residual = residual;
  return LanguageModel(config, 3, std::make_shared<ByteTokenizer>());
}

TEST(LayerStates, AreThoseOfTheModelAndOfOneWithFewerLayers) {
  Tensor ids = Tensor::empty({1, 40}, DType::int32);
  std::iota(ids.data<int32_t>(), ids.data<int32_t>() + 40, 60);
  const std::vector<int64_t> rows = {39, 0, 7};
  for (const Residual residual : {Residual::sum, Residual::normed}) {
    const LanguageModel three = model_of(3, residual);
    const LayerStates found = layer_states(three, ids, rows);
    ASSERT_EQ(found.states.size(), 8u);
    const Tensor hidden = three.hidden(ids), logits = three.logits(ids);
    for (size_t i = 0; i < rows.size(); ++i) {
      const auto at = static_cast<int64_t>(i);
      EXPECT_EQ(found.states.back().slice(0, at, at + 1).clone().to_floats(),
                hidden.slice(1, rows[i], rows[i] + 1).clone().to_floats());
      const std::vector<float> row = found.logits.slice(0, at, at + 1).clone().to_floats();
      const std::vector<float> expected = logits.slice(1, rows[i], rows[i] + 1).clone().to_floats();
      ASSERT_EQ(row.size(), expected.size());
      for (size_t v = 0; v < row.size(); ++v) EXPECT_NEAR(row[v], expected[v], 1e-5);  // of a product of fewer rows
    }
    // The first layer alone has the same states up to its end.
    LanguageModel one = model_of(1, residual);
    std::map<std::string, const Parameter*> by_name;
    for (const Parameter* parameter : three.parameters()) by_name[parameter->name] = parameter;
    for (Parameter* parameter : one.parameters()) parameter->value.copy_from(by_name.at(parameter->name)->value);
    one.weights_changed();
    const LayerStates first = layer_states(one, ids, rows);
    ASSERT_EQ(first.states.size(), 4u);
    for (size_t point = 0; point < 3; ++point) {
      EXPECT_EQ(first.states[point].to_floats(), found.states[point].to_floats()) << point;
    }
    EXPECT_NE(first.states[1].to_floats(), first.states[2].to_floats());
  }
}

TEST(LayerStates, RefuseRowsThatAreNotThere) {
  const LanguageModel model = model_of(1, Residual::sum);
  const Tensor ids({1, 4}, DType::int32);
  const std::vector<int64_t> none, negative = {-1}, past = {4};
  EXPECT_THROW(layer_states(model, ids, none), UsageError);
  EXPECT_THROW(layer_states(model, ids, negative), UsageError);
  EXPECT_THROW(layer_states(model, ids, past), UsageError);
}

}  // namespace
}  // namespace alibi::evaluation
