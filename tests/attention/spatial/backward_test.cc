// Gradients of attention_positions() against the float64 reference, and the reference against numerical gradients.
#include <algorithm>
#include <cmath>
#include <tuple>

#include "attention/spatial/cases.h"

namespace alibi::kernels {
namespace {

using namespace test;

void expect_spatial_backward(const SpatialCase& c) {
  SCOPED_TRACE(c.name());
  SpatialTensors t(c);
  AttentionReferenceGradients expected;
  attention_positions_backward_reference(t.dout, t.q, t.k, t.v, t.positions, c.options, expected);
  const auto count = static_cast<int64_t>(c.options.alibi_slopes.size());
  const bool narrow = c.dtype == DType::bfloat16;
  // dP and delta cancel, so the error is compared with their size too.
  const double dp = max_abs(t.dout.to_floats()) * max_abs(t.v.to_floats());
  const double error = narrow ? 2e-2 : 2e-5;
  for_each_isa([&] {
    for (Tensor* output : {&t.out, &t.dq, &t.dk, &t.dv}) output->fill(std::numeric_limits<float>::quiet_NaN());
    t.forward(c.options);
    Tensor dslopes({count});
    dslopes.fill(2);  // gradients are added
    t.backward(c.options, count > 0 ? &dslopes : nullptr);
    for (const auto& [name, found, of] :
         {std::tuple{"dq", &t.dq, &expected.dq}, {"dk", &t.dk, &expected.dk}, {"dv", &t.dv, &expected.dv}}) {
      EXPECT_TRUE(max_abs_diff(*found, *of) <= error * (max_abs(*of) + dp)) << name << " " << max_abs_diff(*found, *of);
    }
    double extent = 1;
    for (const Tensor& positions : {t.positions.q, t.positions.k}) {
      if (!positions.defined()) continue;
      const auto extend = [&](const auto& values) {
        const auto [least, most] = std::ranges::minmax(values);
        extent = std::max(extent, static_cast<double>(most - least));
      };
      c.integers ? extend(positions.to_ints()) : extend(positions.to_floats());
    }
    for (int64_t i = 0; i < count; ++i) {
      const double of = expected.dslopes[static_cast<size_t>(i)];
      const double found = static_cast<double>(dslopes.data<float>()[i]) - 2;
      const double terms = std::sqrt(static_cast<double>(c.batch * c.queries)) * dp * std::min(extent, 300.0);
      EXPECT_TRUE(std::abs(found - of) <= error * (std::abs(of) + terms)) << i << " " << found << " " << of;
    }
  });
}

TEST(AttentionPositionsBackward, RandomCases) {
  for (const SpatialCase& c : random_spatial_cases(105, 5)) expect_spatial_backward(c);
}

TEST(AttentionPositionsBackward, RandomCasesInBfloat16) {
  for (SpatialCase c : random_spatial_cases(35, 6)) {
    c.dtype = DType::bfloat16;
    expect_spatial_backward(c);
  }
}

TEST(AttentionPositionsBackward, RandomCasesWithTheSkipRule) {
  for (SpatialCase c : random_spatial_cases(70, 7)) {
    c.options.tolerance = 0x1p-24f;
    expect_spatial_backward(c);
  }
}

TEST(AttentionPositionsBackward, ManyChunksOfQueries) {
  SpatialCase c{.queries = 2000, .keys = 900, .heads = 2, .kv_heads = 1, .head_dim = 8};
  c.options.alibi_slopes = {0.5f, 0.05f};
  expect_spatial_backward(c);
}

/// Central differences with two step sizes, which cancel the leading error. Inputs lie on a grid, so that the steps are
/// exact in float32.
TEST(AttentionPositionsReference, AgreesWithNumericalGradients) {
  for (SpatialCase c : random_spatial_cases(60, 8)) {
    c.queries = 5;
    c.keys = c.self ? 5 : 6;
    c.batch = 1;
    c.heads = 2;
    c.kv_heads = 1;
    c.head_dim = 3;
    c.options = {.alibi_slopes = {0.5f, 0.25f}, .distance = c.options.distance, .leading = c.options.leading % 3};
    SCOPED_TRACE(c.name());
    SpatialTensors t(c);
    for (Tensor* input : {&t.q, &t.k, &t.v}) {
      float* values = input->data<float>();
      for (int64_t i = 0; i < input->elements(); ++i) values[i] = std::round(values[i] * 0x1p12f) * 0x1p-12f;
    }
    AttentionReferenceGradients expected;
    attention_positions_backward_reference(t.dout, t.q, t.k, t.v, t.positions, c.options, expected);
    const std::vector<double> cotangent = doubles(t.dout);
    const auto gradient = [&](float* values, int64_t size, double step) {
      const auto loss = [&](const std::vector<double>& x) {
        for (size_t i = 0; i < x.size(); ++i) values[i] = static_cast<float>(x[i]);
        std::vector<double> out;
        attention_positions_reference(t.q, t.k, t.v, t.positions, c.options, out);
        return dot(out, cotangent);
      };
      const std::vector<double> at(values, values + size);
      const std::vector<double> coarse = numerical_gradient(loss, at, step);
      std::vector<double> fine = numerical_gradient(loss, at, step / 2);
      loss(at);
      for (size_t i = 0; i < fine.size(); ++i) fine[i] = (4 * fine[i] - coarse[i]) / 3;
      return fine;
    };
    EXPECT_TRUE(max_abs_diff(gradient(t.q.data<float>(), t.q.elements(), 0x1p-6), expected.dq) <= 1e-6);
    EXPECT_TRUE(max_abs_diff(gradient(t.k.data<float>(), t.k.elements(), 0x1p-6), expected.dk) <= 1e-6);
    EXPECT_TRUE(max_abs_diff(gradient(t.v.data<float>(), t.v.elements(), 0x1p-6), expected.dv) <= 1e-6);
    if (c.pattern == Pattern::clusters || c.pattern == Pattern::far_apart) continue;  // distances above 1000
    EXPECT_TRUE(max_abs_diff(gradient(c.options.alibi_slopes.data(), 2, 0x1p-10), expected.dslopes) <= 1e-5);
  }
}

TEST(AttentionPositionsBackward, Errors) {
  SpatialCase c{.queries = 5, .keys = 6};
  c.options.alibi_slopes = {0.5f};
  SpatialTensors t(c);
  expect_error([&] { t.backward(c.options); }, "[attention_positions_backward] state.lse has shape []");
  t.forward(c.options);
  const Tensor low = t.state.lse_low, stops = t.state.stops;
  t.state.lse_low = Tensor({1, 1, 4});
  expect_error([&] { t.backward(c.options); }, "state.lse_low has shape [1, 1, 4], expected [1, 1, 5]");
  t.state.lse_low = low;
  t.state.stops = Tensor({1}, DType::int32);
  expect_error([&] { t.backward(c.options); }, "state.stops has shape [1], expected int32 [2]");
  t.state.stops = stops;
  Tensor dslopes({2});
  expect_error([&] { t.backward(c.options, &dslopes); }, "[attention_positions_backward] dslopes has shape [2]");
  t.dk = t.k;
  expect_error([&] { t.backward(c.options); }, "[attention_positions_backward] dk shares memory with k");
}

}  // namespace
}  // namespace alibi::kernels
