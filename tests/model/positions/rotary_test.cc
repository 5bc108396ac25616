// Rotation of a part of head_dim. The tests of all models have the rest.
#include <gtest/gtest.h>

#include "alibi/transformer.h"
#include "core/access.h"
#include "model/small_transformer.h"
#include "model/transformer_state.h"
#include "nn/positions.h"
#include "testing.h"

namespace alibi::model {
namespace {

TransformerConfig partial(double factor) {
  TransformerConfig config = test::small_transformer(Position::rotary);
  config.d_model = 8 * config.attention.heads;
  config.attention.position_numbers["partial_rotary_factor"] = factor;
  return config;
}

TEST(PartialRotary, RotatesTheFirstPartAndLeavesTheRest) {
  const Transformer model(partial(0.5), 3);
  const int64_t heads = model.config().attention.heads;
  const Tensor x = test::random_tensor({2, 5, heads, 8}, 7);
  Tensor expected = x.clone(), found = x.clone();
  Tensor first = Tensor({2, 5, heads, 4});
  first.copy_from(x.slice(3, 0, 4));
  nn::rotary(first, 11, static_cast<float>(model.config().attention.rotary_theta), first);
  Tensor part = expected.slice(3, 0, 4);
  part.copy_from(first);
  core::state_of(model).positions.rotation->rotate(found, 11, 1);
  EXPECT_EQ(found.to_floats(), expected.to_floats());
  core::state_of(model).positions.rotation->rotate_backward(found, 11);
  EXPECT_LE(test::max_abs_diff(found, x), 1e-6);
}

TEST(PartialRotary, ItsShareIsAnEvenNumberOfDimensions) {
  for (const double factor : {0.125, 0.3, 0.001}) {
    test::expect_error<UsageError>([&] { partial(factor).validate(); }, "expected an even number from 2 on");
  }
  for (const double factor : {0.25, 0.5, 0.75, 1.0}) partial(factor).validate();
}

}  // namespace
}  // namespace alibi::model
