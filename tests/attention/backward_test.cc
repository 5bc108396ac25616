#include <cmath>

#include "attention/cases.h"

namespace alibi::kernels {
namespace {

using namespace test;

void expect_close(const char* name, const Tensor& found, const std::vector<double>& expected,
                  const std::vector<double>& plain, double relative_floor, double min_scale) {
  const double yardstick = max_abs_diff(plain, expected);
  const double error = max_abs_diff(found, expected);
  EXPECT_TRUE(error <= 2 * yardstick + relative_floor * std::max(max_abs(expected), min_scale))
      << name << ": " << error << " against " << yardstick << " of the plain formula, largest " << max_abs(expected);
}

void expect_backward(const AttentionCase& c) {
  SCOPED_TRACE(c.name());
  AttentionTensors t(c);
  AttentionReferenceGradients expected;
  attention_backward_reference(t.dout, t.q, t.k, t.v, c.options, expected);
  const PlainResult plain = plain_attention(c, t, true);
  // If one key has all the weight, dP and delta cancel. So the rounding error is compared with their size, not with
  // that of the result.
  const bool narrow = c.dtype != DType::float32;
  const double floor = c.dtype == DType::bfloat16 ? 0x1p-7 : narrow ? 0x1p-10 : 0x1p-18;
  const double dp = narrow ? max_abs(t.dout.to_floats()) * max_abs(t.v.to_floats()) : 0;
  for_each_isa([&] {
    t.forward(c.options);
    Tensor dtable, dslopes;
    AttentionBiasGradients bias;
    if (table_of(c.options).defined()) {
      dtable = Tensor(table_of(c.options).shape());
      bias.dtable = &dtable;
    } else if (!c.options.alibi_slopes.empty()) {
      dslopes = Tensor({static_cast<int64_t>(c.options.alibi_slopes.size())});
      bias.dslopes = &dslopes;
    }
    Tensor dsinks({c.heads});
    if (!c.options.sinks.empty()) bias.dsinks = &dsinks;
    t.backward(c.options, bias);
    expect_close("dq", t.dq, expected.dq, plain.dq, floor, dp);
    expect_close("dk", t.dk, expected.dk, plain.dk, floor, dp);
    expect_close("dv", t.dv, expected.dv, plain.dv, floor, 0);
    // The allowed error of sums of many terms of either sign grows with the number of terms.
    const double terms =
        std::sqrt(static_cast<double>(c.batch * c.queries)) * (c.dtype == DType::float32 ? 2e-5 : 5e-2);
    if (!c.options.sinks.empty()) {
      EXPECT_LE(max_abs_diff(dsinks, expected.dsinks), terms);
    }
    if (dtable.defined()) {
      EXPECT_TRUE(max_abs_diff(dtable, expected.dtable) <= terms);
    }
    if (dslopes.defined()) {
      // Without a sink, distances count from the nearest key, because the gradients of a row's scores sum to zero.
      const int64_t farthest = c.options.sinks.empty() ? 0 : std::abs(c.options.query_offset.value_or(0)) + c.queries;
      const auto distance = static_cast<double>(std::max(farthest, std::min<int64_t>(c.keys, 300)));
      EXPECT_TRUE(max_abs_diff(dslopes, expected.dslopes) <= terms * distance)
          << max_abs_diff(dslopes, expected.dslopes) << " of " << max_abs(expected.dslopes);
    }
  });
}

TEST(AttentionBackward, RandomCases) {
  for (const AttentionCase& c : random_cases(60, 3)) expect_backward(c);
}

TEST(AttentionBackward, RandomCasesInBfloat16) {
  for (AttentionCase c : random_cases(30, 4)) {
    c.dtype = DType::bfloat16;
    expect_backward(c);
  }
}

TEST(AttentionBackward, RandomCasesInFloat16) {
  for (AttentionCase c : random_cases(30, 5)) {
    c.dtype = DType::float16;
    expect_backward(c);
  }
}

TEST(AttentionBackward, BucketsOfEveryMaxDistance) {
  for (const AttentionCase& c : cases_of_every_max_distance()) expect_backward(c);
}

TEST(AttentionBackward, TablesByDistance) {
  for (AttentionCase c : cases_by_distance()) {
    expect_backward(c);
    c.dtype = DType::bfloat16;
    expect_backward(c);
  }
}

TEST(AttentionBackward, ScalesOfEitherSign) {
  for (const AttentionCase& c : cases_of_either_sign()) expect_backward(c);
}

TEST(AttentionBackward, ManyChunksOfQueries) {
  AttentionCase c{.queries = 900, .keys = 900, .heads = 2, .kv_heads = 1, .head_dim = 8};
  c.options.alibi_slopes = slopes(2);
  expect_backward(c);
}

/// The reference's gradients against central differences of its own output, with a random cotangent. Inputs lie on a
/// grid of 2^-12, so that the steps are exact in float32; two step sizes cancel the leading error.
TEST(AttentionBackwardReference, AgreesWithNumericalGradients) {
  for (const int kind : {0, 1, 2, 3, 4, 5, 6, 7}) {
    AttentionCase c{.batch = 2, .queries = 5, .keys = 6, .heads = 2, .kv_heads = 1, .head_dim = 3};
    c.options.causal = kind != 3 && kind != 5;
    c.options.query_offset = kind == 2 ? 0 : 1;
    if (kind == 1 || kind == 3) c.options.alibi_slopes = {0.5f, 0.25f};
    if (kind >= 6) {
      if (kind == 7) c.options.sinks = {0.5f, -1};
      c.options.softcap = 0.75f;
      c.options.alibi_slopes = {0.5f, 0.25f};
    }
    if (kind == 2) c.options.buckets = random_buckets(2, 6, 4, 5);
    if (kind == 4 || kind == 5) c.options.bias_by_distance = random_bias_by_distance(2, 4, c.options.causal, 7);
    if (kind != 0) c.options.dropout_p = 0.25f;
    SCOPED_TRACE(c.name());
    AttentionTensors t(c);
    for (Tensor* input : {&t.q, &t.k, &t.v}) {
      float* values = input->data<float>();
      for (int64_t i = 0; i < input->elements(); ++i) values[i] = std::round(values[i] * 0x1p12f) * 0x1p-12f;
    }
    AttentionReferenceGradients expected;
    attention_backward_reference(t.dout, t.q, t.k, t.v, c.options, expected);
    const std::vector<double> cotangent = doubles(t.dout);
    const auto gradient = [&](float* values, int64_t size) {
      const auto loss = [&](const std::vector<double>& x) {
        for (size_t i = 0; i < x.size(); ++i) values[i] = static_cast<float>(x[i]);
        std::vector<double> out;
        attention_reference(t.q, t.k, t.v, c.options, out);
        return dot(out, cotangent);
      };
      const std::vector<double> at(values, values + size);
      const std::vector<double> coarse = numerical_gradient(loss, at, 0x1p-6);
      std::vector<double> fine = numerical_gradient(loss, at, 0x1p-7);
      loss(at);
      for (size_t i = 0; i < fine.size(); ++i) fine[i] = (4 * fine[i] - coarse[i]) / 3;
      return fine;
    };
    EXPECT_LE(relative_diff(gradient(t.q.data<float>(), t.q.elements()), expected.dq), 1e-6);
    EXPECT_LE(relative_diff(gradient(t.k.data<float>(), t.k.elements()), expected.dk), 1e-6);
    EXPECT_LE(relative_diff(gradient(t.v.data<float>(), t.v.elements()), expected.dv), 1e-6);
    if (!c.options.alibi_slopes.empty()) {
      EXPECT_LE(relative_diff(gradient(c.options.alibi_slopes.data(), 2), expected.dslopes), 1e-6);
    }
    if (!c.options.sinks.empty()) {
      EXPECT_LE(relative_diff(gradient(c.options.sinks.data(), 2), expected.dsinks), 1e-6);
    }
    if (Tensor table = table_of(c.options); table.defined()) {
      for (int64_t i = 0; i < table.elements(); ++i) {
        table.data<float>()[i] = std::round(table.data<float>()[i] * 0x1p12f) * 0x1p-12f;
      }
      attention_backward_reference(t.dout, t.q, t.k, t.v, c.options, expected);
      EXPECT_LE(relative_diff(gradient(table.data<float>(), table.elements()), expected.dtable), 1e-6);
    }
  }
}

TEST(AttentionBackward, BiasGradientsAreAdded) {
  const AttentionCase c{.queries = 40, .keys = 40, .heads = 2, .kv_heads = 2};
  AttentionTensors t(c);
  AttentionOptions options{.alibi_slopes = slopes(2), .sinks = {1, -1}};
  t.forward(options);
  for (Tensor* AttentionBiasGradients::*const of :
       {&AttentionBiasGradients::dslopes, &AttentionBiasGradients::dsinks}) {
    Tensor once({2}), twice({2});
    AttentionBiasGradients bias;
    for (Tensor* const to : {&once, &twice, &twice}) {
      bias.*of = to;
      t.backward(options, bias);
    }
    for (int64_t i = 0; i < 2; ++i) EXPECT_EQ(twice.data<float>()[i], 2 * once.data<float>()[i]);
    EXPECT_GT(max_abs(once.to_floats()), 0);
  }
}

}  // namespace
}  // namespace alibi::kernels
