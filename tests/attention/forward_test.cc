#include <cmath>

#include "attention/cases.h"

namespace alibi::kernels {
namespace {

using namespace test;

/// On every instruction set, the kernel's error may be at most twice that of the plain formula. The floor is for sizes
/// where that is nearly zero.
void expect_forward(const AttentionCase& c) {
  SCOPED_TRACE(c.name());
  AttentionTensors t(c);
  std::vector<double> out, lse;
  attention_reference(t.q, t.k, t.v, c.options, out, &lse);
  const double floor = max_abs(out) * (c.dtype == DType::float32   ? 0x1p-22
                                       : c.dtype == DType::float16 ? 0x1p-11
                                                                   : 0x1p-8);
  const double plain = max_abs_diff(plain_attention(c, t, false).out, out);
  for_each_isa([&] {
    t.forward(c.options);
    EXPECT_TRUE(max_abs_diff(t.out, out) <= 2 * plain + floor)
        << max_abs_diff(t.out, out) << " against " << plain << " of the plain formula";
    const std::vector<double> found = doubles(t.state.lse);
    ASSERT_EQ(found.size(), lse.size());
    const double score = 1 + static_cast<double>(c.input_scale * c.input_scale);
    for (size_t i = 0; i < lse.size(); ++i) {
      if (found[i] == lse[i]) continue;  // -infinity
      EXPECT_TRUE(std::abs(found[i] - lse[i]) <= 4e-6 * score + 1e-6 * std::abs(lse[i]))
          << "lse " << i << ": " << found[i] << ", expected " << lse[i];
    }
  });
}

/// The log-sum-exp of a row far from the keys, whose biases are counted from its nearest key, is that of its sink.
TEST(AttentionForward, SinksOfRowsFarFromTheKeys) {
  AttentionCase c{.queries = 65, .keys = 65, .heads = 4, .kv_heads = 2};
  c.options.alibi_slopes = slopes(4);
  c.options.sinks = random_sinks(4, 1);
  c.options.sinks.back() = 30000;
  for (const bool causal : {true, false}) {
    for (const int64_t offset : {1000000, -1000000}) {
      if (causal && offset < 0) continue;
      c.options.causal = causal;
      c.options.query_offset = offset;
      AttentionTensors t(c);
      for_each_isa([&] {
        t.forward(c.options);
        for (int64_t i = 0; i < c.queries; ++i) EXPECT_EQ(t.out.slice(1, i, i + 1).clone().to_floats()[0], 0);
        for (int64_t i = 0; i < 4 * c.queries; ++i) {
          EXPECT_FLOAT_EQ(t.state.lse.data<float>()[i], c.options.sinks[static_cast<size_t>(i / c.queries)]);
        }
      });
    }
  }
}

TEST(AttentionForward, RandomCases) {
  for (const AttentionCase& c : random_cases(80, 1)) expect_forward(c);
}

TEST(AttentionForward, RandomCasesInBfloat16) {
  for (AttentionCase c : random_cases(50, 2)) {
    c.dtype = DType::bfloat16;
    expect_forward(c);
  }
}

TEST(AttentionForward, RandomCasesInFloat16) {
  for (AttentionCase c : random_cases(50, 3)) {
    c.dtype = DType::float16;
    expect_forward(c);
  }
}

TEST(AttentionForward, EveryLengthAroundTheBlocks) {
  for (const int64_t length : {1, 2, 15, 16, 17, 47, 48, 49, 63, 64, 65, 95, 97, 127, 129, 192, 193, 257}) {
    for (const bool causal : {true, false}) {
      AttentionCase c{.queries = length, .keys = length, .heads = 2, .kv_heads = 2, .head_dim = 16};
      c.options.alibi_slopes = slopes(2);
      c.options.causal = causal;
      expect_forward(c);
    }
  }
}

TEST(AttentionForward, WindowsThatEndInTheCornerOfATile) {
  // 16 n + 47: only the last query and the first key of a tile are too far apart, by one.
  for (const int64_t window : {1, 15, 46, 47, 48, 63, 79, 95, 111, 127, 143, 144}) {
    for (const bool causal : {true, false}) {
      AttentionCase c{.queries = 200, .keys = 200, .head_dim = 8};
      c.options.sliding_window = window;
      c.options.causal = causal;
      expect_forward(c);
    }
  }
}

TEST(AttentionForward, WindowsThatReachFurtherOnOneSide) {
  for (const auto& [before, after] : std::vector<std::pair<int64_t, int64_t>>{
           {0, 1}, {0, 48}, {1, -1}, {1, 70}, {31, 64}, {64, 31}, {100, 1}, {150, -1}, {0, 300}}) {
    for (const DType dtype : {DType::float32, DType::bfloat16}) {
      AttentionCase c{.queries = 170, .keys = 210, .heads = 2, .kv_heads = 2, .head_dim = 16, .dtype = dtype};
      c.options.causal = false;
      c.options.sliding_window = before;
      c.options.sliding_window_after = after;
      c.options.alibi_slopes = slopes(2);
      expect_forward(c);
    }
  }
}

TEST(AttentionForward, WeightsAreRightToTheirLastPlaces) {
  // Two keys whose values differ: the ratio of the outputs is one exponential.
  constexpr int64_t queries = 400;
  AttentionCase c{.queries = queries, .keys = 2, .head_dim = 2};
  c.options = {.causal = false, .softmax_scale = 1};
  AttentionTensors t(c);
  t.k.fill(0);
  t.v.fill(0);
  t.k.slice(1, 1, 2).fill(1);
  for (int64_t key = 0; key < 2; ++key) t.v.slice(1, key, key + 1).slice(3, key, key + 1).fill(1);
  t.q.fill(0);
  for (int64_t row = 0; row < queries; ++row) t.q.data<float>()[2 * row] = -static_cast<float>(row) / 256;
  for_each_isa([&] {
    t.forward(c.options);
    double worst = 0;
    for (int64_t row = 0; row < queries; ++row) {
      const float* out = t.out.data<float>() + 2 * row;
      const double expected = std::exp(static_cast<double>(t.q.data<float>()[2 * row]));
      worst = std::max(worst, std::abs(static_cast<double>(out[1]) / static_cast<double>(out[0]) / expected - 1));
    }
    EXPECT_LE(worst, 4e-7);
  });
}

TEST(AttentionForward, BucketsOfEveryMaxDistance) {
  for (const AttentionCase& c : cases_of_every_max_distance()) expect_forward(c);
}

TEST(AttentionForward, TablesByDistance) {
  for (AttentionCase c : cases_by_distance()) {
    expect_forward(c);
    c.dtype = DType::bfloat16;
    expect_forward(c);
  }
}

TEST(AttentionForward, BucketsAreATableByDistance) {
  for (AttentionCase c : cases_of_every_max_distance()) {
    SCOPED_TRACE(c.name());
    const AttentionTensors t(c);
    const Tensor expected = attention(t.q, t.k, t.v, c.options);
    const BucketedBias buckets = *c.options.buckets;
    const int64_t distances = buckets.max_distance + 1, first = c.options.causal ? 0 : -buckets.max_distance;
    Tensor table({c.options.causal ? distances : 2 * distances - 1, c.heads});
    for (int64_t row = 0; row < table.size(0); ++row) {
      const int bucket = relative_position_bucket(first + row, c.options.causal,
                                                  static_cast<int>(buckets.table.size(0)), buckets.max_distance);
      table.slice(0, row, row + 1).copy_from(buckets.table.slice(0, bucket, bucket + 1));
    }
    c.options.buckets.reset();
    c.options.bias_by_distance = table;
    EXPECT_TRUE(same_bits(attention(t.q, t.k, t.v, c.options), expected));
  }
}

TEST(AttentionForward, ScalesOfEitherSign) {
  for (const AttentionCase& c : cases_of_either_sign()) expect_forward(c);
}

TEST(AttentionForward, Softcap) {
  for (const float softcap : {0x1p-20f, 0.1f, 5.0f, 50.0f, 0x1p20f}) {
    for (const float input_scale : {0.01f, 1.0f, 8.0f}) {
      if (softcap > 1000 && input_scale > 1) continue;  // the error of tanh, 2^-21 of the score, shows in the weights
      AttentionCase c{
          .queries = 100, .keys = 130, .heads = 2, .kv_heads = 1, .head_dim = 24, .input_scale = input_scale};
      c.options.alibi_slopes = slopes(2);
      c.options.softcap = softcap;
      expect_forward(c);
      c.dtype = DType::bfloat16;
      expect_forward(c);
      c.options.query_offset = 200;  // queries outside the keys' positions
      expect_forward(c);
    }
  }
}

TEST(AttentionForward, NanShowsWithASoftcap) {
  const AttentionCase c{.queries = 100, .keys = 100, .heads = 1, .kv_heads = 1, .head_dim = 32};
  for_each_isa([&] {
    for (Tensor AttentionTensors::*input : {&AttentionTensors::q, &AttentionTensors::k, &AttentionTensors::v}) {
      AttentionTensors t(c);
      (t.*input).slice(1, 10, 11).slice(3, 5, 6).fill(std::numeric_limits<float>::quiet_NaN());
      t.forward({.alibi_slopes = {0.5f}, .softcap = 2, .tolerance = 0.01f});
      EXPECT_TRUE(std::isnan(max_abs(t.out.slice(1, 10, 11).to_floats())));
      EXPECT_FALSE(std::isnan(max_abs(t.out.slice(1, 0, 10).to_floats()))) << "masked keys do not reach the result";
    }
  });
}

TEST(AttentionForward, LargeScoresStayFinite) {
  AttentionCase c{.queries = 100, .keys = 100, .heads = 2, .kv_heads = 2, .head_dim = 64, .input_scale = 30};
  c.options.alibi_slopes = {0.5f, 0.01f};
  expect_forward(c);
}

TEST(AttentionForward, TheLargestSlopesSeeTheNearestKey) {
  const AttentionCase c{.queries = 3, .keys = 70, .heads = 2, .kv_heads = 2, .head_dim = 16};
  AttentionTensors t(c);
  for (const int64_t offset : {int64_t{0}, int64_t{67}, int64_t{70}, int64_t{1000}}) {
    const AttentionOptions options{.alibi_slopes = {0x1p126f, 1e30f}, .query_offset = offset};
    for_each_isa([&] {
      t.forward(options);
      const std::vector<double> v = doubles(t.v), out = doubles(t.out);
      for (int64_t i = 0; i < c.queries; ++i) {
        const int64_t nearest = std::min(offset + i, c.keys - 1);
        for (int64_t n = 0; n < 2 * 16; ++n) {
          EXPECT_EQ(out[static_cast<size_t>(i * 32 + n)], v[static_cast<size_t>(nearest * 32 + n)])
              << offset << " " << i;
        }
      }
    });
  }
}

TEST(AttentionForward, ShiftInvariance) {
  // The published form adds m * j to every row; softmax sees no difference to -m * (i - j).
  const AttentionCase c{.batch = 2, .queries = 130, .keys = 130, .heads = 3, .kv_heads = 3, .head_dim = 16};
  AttentionOptions options{.alibi_slopes = slopes(3)};
  AttentionTensors t(c);
  for_each_isa([&] {
    t.forward(options);
    std::vector<double> absolute(static_cast<size_t>(t.q.elements()), 0.0);
    const std::vector<double> q = doubles(t.q), k = doubles(t.k), v = doubles(t.v);
    for (int64_t b = 0; b < c.batch; ++b) {
      for (int64_t i = 0; i < c.queries; ++i) {
        for (int64_t h = 0; h < c.heads; ++h) {
          const auto at = [&](int64_t row) { return static_cast<size_t>(((b * c.queries + row) * c.heads + h) * 16); };
          std::vector<double> p;
          double sum = 0;
          for (int64_t j = 0; j <= i; ++j) {
            double s = static_cast<double>(options.alibi_slopes[static_cast<size_t>(h)]) * static_cast<double>(j - 129);
            for (size_t n = 0; n < 16; ++n) s += q[at(i) + n] * k[at(j) + n] / 4;
            p.push_back(std::exp(s));
            sum += p.back();
          }
          for (int64_t j = 0; j <= i; ++j) {
            for (size_t n = 0; n < 16; ++n) absolute[at(i) + n] += p[static_cast<size_t>(j)] / sum * v[at(j) + n];
          }
        }
      }
    }
    EXPECT_LE(max_abs_diff(t.out, absolute), 2e-6);
  });
}

TEST(AttentionForward, QueriesFarBeyondTheKeysKeepTheirPrecision) {
  // At a distance of a million the bias is 250,000 nats; only its differences may matter.
  AttentionCase c{.queries = 60, .keys = 200, .heads = 4, .kv_heads = 4, .head_dim = 32};
  c.options.alibi_slopes = slopes(4);
  for (const int64_t offset : {int64_t{1000000}, int64_t{-1000000}, int64_t{1} << 35}) {
    c.options.query_offset = offset;
    c.options.causal = offset > 0;
    expect_forward(c);
  }
}

TEST(AttentionForward, RowsWithoutKeysAreZero) {
  AttentionCase c{.queries = 70, .keys = 90, .heads = 2, .kv_heads = 1, .head_dim = 16};
  c.options.query_offset = -60;  // causal: the first 60 queries come before every key
  for_each_isa([&] {
    AttentionTensors t(c);
    t.forward(c.options);
    EXPECT_EQ(max_abs(t.out.slice(1, 0, 60).to_floats()), 0);
    EXPECT_TRUE(std::isinf(t.state.lse.to_floats()[59]));
    EXPECT_TRUE(std::isfinite(t.state.lse.to_floats()[60]));
    t.backward(c.options);
    EXPECT_EQ(max_abs(t.dq.slice(1, 0, 60).to_floats()), 0);
    EXPECT_EQ(max_abs(t.dk.slice(1, 10, 90).to_floats()), 0);
  });
}

TEST(AttentionForward, NoKeysAndNoQueries) {
  for (const int64_t keys : {0, 5}) {
    const AttentionCase c{.queries = 5 - keys, .keys = keys, .heads = 2, .kv_heads = 2};
    AttentionTensors t(c);
    t.forward(c.options);
    t.backward(c.options);
    for (const Tensor* output : {&t.out, &t.dq, &t.dk, &t.dv}) EXPECT_EQ(max_abs(output->to_floats()), 0);
  }
}

TEST(AttentionForward, NothingThatIsMaskedReachesTheResult) {
  const AttentionCase c{.queries = 100, .keys = 100, .heads = 2, .kv_heads = 2, .head_dim = 32};
  for (const float poison : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    for_each_isa([&] {
      AttentionTensors clean(c), bad(c);
      bad.k.slice(1, 70, 100).fill(poison);
      bad.v.slice(1, 70, 100).fill(poison);
      AttentionOptions options{.alibi_slopes = slopes(2)};
      clean.forward(options);
      clean.backward(options);
      bad.forward(options);
      bad.backward(options);
      EXPECT_LE(max_abs_diff(bad.out.slice(1, 0, 70), doubles(clean.out.slice(1, 0, 70))), 1e-6);
      EXPECT_LE(max_abs_diff(bad.dq.slice(1, 0, 70), doubles(clean.dq.slice(1, 0, 70))), 1e-6);
      EXPECT_TRUE(std::isnan(max_abs(bad.out.slice(1, 70, 100).to_floats())));
    });
  }
}

TEST(AttentionForward, NanInAnInputShows) {
  const AttentionCase c{.queries = 100, .keys = 100, .heads = 1, .kv_heads = 1, .head_dim = 32};
  for_each_isa([&] {
    for (Tensor AttentionTensors::*input : {&AttentionTensors::q, &AttentionTensors::k, &AttentionTensors::v}) {
      AttentionTensors t(c);
      (t.*input).slice(1, 10, 11).slice(3, 5, 6).fill(std::numeric_limits<float>::quiet_NaN());
      t.forward({});
      EXPECT_TRUE(std::isnan(max_abs(t.out.slice(1, 10, 11).to_floats())));
    }
  });
}

}  // namespace
}  // namespace alibi::kernels
