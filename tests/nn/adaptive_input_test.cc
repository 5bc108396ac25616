#include "nn/adaptive_input.h"

#include <gtest/gtest.h>

#include "nn/adaptive_reference.h"

namespace alibi::nn {
namespace {

using test::Bands;
using test::Doubles;
using test::doubles;
using test::random_ids;
using test::random_tensor;

/// One band; three; bands of one word; more rows than a task holds.
const std::vector<std::pair<Bands, int64_t>> shapes{
    {{{5}, {3}}, 4}, {{{4, 6, 11}, {16, 4, 1}}, 29}, {{{1, 1, 1}, {7, 3, 2}}, 1}, {{{30, 50}, {33, 8}}, 1100}};

TEST(AdaptiveInput, MatchesFloat64) {
  test::for_each_isa([] {
    for (const auto& [bands, rows] : shapes) {
      const nn::AdaptiveWeights weights = test::random_weights(bands, 1);
      const Tensor ids = random_ids({rows}, 9, bands.vocab());
      Tensor y = Tensor::empty({rows, bands.d()});
      y.fill(99);
      nn::adaptive_input(ids, weights, 1.5f, y);
      const Doubles expected = test::adaptive_input_reference(bands, test::flatten(weights), ids.to_ints(), 1.5);
      EXPECT_TRUE(test::relative_diff(doubles(y), expected) <= 1e-6) << rows;
    }
  });
}

TEST(AdaptiveInput, GradientsAreThoseOfTheReferenceAndAreAdded) {
  for (const auto& shape : shapes) {
    const auto& bands = shape.first;  // not a structured binding: lambdas see it
    const auto& all_rows = shape.second;
    const int64_t rows = std::min<int64_t>(all_rows, 29);
    const nn::AdaptiveWeights weights = test::random_weights(bands, 1);
    const Tensor ids = random_ids({rows}, 9, bands.vocab()), dy = random_tensor({rows, bands.d()}, 4);
    nn::AdaptiveWeights gradients = test::filled_like(weights, 2);
    nn::adaptive_input_backward(dy, ids, weights, 1.5f, gradients);
    Doubles expected = test::numerical_gradient(
        [&](const Doubles& flat) {
          return test::dot(test::adaptive_input_reference(bands, flat, ids.to_ints(), 1.5), doubles(dy));
        },
        test::flatten(weights));
    for (double& value : expected) value += 2;
    EXPECT_TRUE(test::relative_diff(test::flatten(gradients), expected) <= 2e-6) << rows;
  }
}

TEST(AdaptiveInput, Bfloat16WithFloat32Gradients) {
  const Bands bands{{40, 60, 70}, {32, 8, 2}};
  const nn::AdaptiveWeights weights = test::random_weights(bands, 1, DType::bfloat16);
  const Tensor ids = random_ids({300}, 9, bands.vocab()), dy = random_tensor({300, 32}, 4, 1, DType::bfloat16);
  Tensor y = Tensor::empty({300, 32}, DType::bfloat16);
  nn::adaptive_input(ids, weights, 4, y);
  const Doubles expected = test::adaptive_input_reference(bands, test::flatten(weights), ids.to_ints(), 4);
  EXPECT_TRUE(test::relative_diff(doubles(y), expected) <= 0x1p-8);
  Tensor stream = Tensor::empty({300, 32});  // into a float32 stream nothing is rounded
  nn::adaptive_input(ids, weights, 4, stream);
  EXPECT_TRUE(test::relative_diff(doubles(stream), expected) <= 1e-6);

  nn::AdaptiveWeights wide, gradients = test::filled_like(weights, 0), wide_gradients = test::filled_like(weights, 0);
  for (const Tensor& table : weights.tables) wide.tables.push_back(table.to(DType::float32));
  for (const Tensor& projection : weights.projections) wide.projections.push_back(projection.to(DType::float32));
  nn::adaptive_input_backward(dy, ids, weights, 4, gradients);
  nn::adaptive_input_backward(dy.to(DType::float32), ids, wide, 4, wide_gradients);
  EXPECT_TRUE(test::relative_diff(test::flatten(gradients), test::flatten(wide_gradients)) <= 0x1p-7);
  nn::AdaptiveWeights same = test::filled_like(weights, 0);
  nn::adaptive_input_backward(dy.to(DType::float32), ids, weights, 4, same);
  EXPECT_EQ(test::flatten(same), test::flatten(gradients));
}

TEST(AdaptiveInput, SameBitsAtAnyThreadCount) {
  const Bands bands{{100, 300, 900}, {64, 16, 4}};
  const nn::AdaptiveWeights weights = test::random_weights(bands, 1);
  const Tensor ids = random_ids({3000}, 9, bands.vocab()), dy = random_tensor({3000, 64}, 4);
  test::expect_same_bits_at_any_thread_count([&] {
    Tensor y = Tensor::empty({3000, 64});
    nn::adaptive_input(ids, weights, 8, y);
    nn::AdaptiveWeights gradients = test::filled_like(weights, 0);
    nn::adaptive_input_backward(dy, ids, weights, 8, gradients);
    std::vector<Tensor> results{y};
    results.insert(results.end(), gradients.tables.begin(), gradients.tables.end());
    results.insert(results.end(), gradients.projections.begin(), gradients.projections.end());
    return results;
  });
}

TEST(AdaptiveInput, ErrorsNameTheArgument) {
  const Bands bands{{4, 6}, {8, 2}};
  nn::AdaptiveWeights weights = test::random_weights(bands, 1);
  Tensor y = Tensor::empty({2, 8});
  const auto message = [&](int32_t id) {
    const Tensor ids = Tensor::from(std::vector<int32_t>{0, id}, {2});
    return test::message_of([&] { nn::adaptive_input(ids, weights, 1, y); });
  };
  EXPECT_EQ(message(10), "[adaptive_input] id 10 at row 1, expected 0 to 9");
  EXPECT_EQ(message(-1), "[adaptive_input] id -1 at row 1, expected 0 to 9");
  EXPECT_EQ(message(9), "no error");
  weights.projections[1] = Tensor({8, 3});
  EXPECT_EQ(message(0), "[adaptive_input] the projection of band 1 is float32 [8, 3], expected float32 [8, 2]");
  weights.projections.pop_back();
  EXPECT_NE(message(0).find("2 tables and 1 projections"), std::string::npos);
}

}  // namespace
}  // namespace alibi::nn
