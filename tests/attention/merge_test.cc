#include <gtest/gtest.h>

#include "alibi/attention.h"
#include "alibi/kv_cache.h"
#include "attention/workspace.h"
#include "testing.h"

namespace alibi::test {
namespace {

struct Part {
  Tensor out, lse;
};

Part attend(const Tensor& q, const Tensor& k, const Tensor& v, const AttentionOptions& options) {
  Part part{Tensor::empty(q.shape(), q.dtype()), {}};
  AttentionState state;
  attention(q, k, v, options, part.out, &state);
  part.lse = state.lse;
  return part;
}

/// Attention over a part [begin, end) of the keys.
Part attend_part(const Tensor& q, const Tensor& k, const Tensor& v, AttentionOptions options, int64_t begin,
                 int64_t end) {
  options.query_offset = options.query_offset.value_or(k.size(1) - q.size(1)) - begin;
  return attend(q, k.slice(1, begin, end), v.slice(1, begin, end), options);
}

Part merged(const Part& a, const Part& b) {
  Part part{Tensor::empty(a.out.shape(), a.out.dtype()), Tensor::empty(a.lse.shape())};
  merge_attention(a.out, a.lse, b.out, b.lse, part.out, part.lse);
  return part;
}

void expect_equal(const Part& found, const Part& expected, double tolerance) {
  EXPECT_TRUE(max_abs_diff(found.out, expected.out) <= tolerance);
  EXPECT_TRUE(max_abs_diff(found.lse, expected.lse) <= 4e-6);
}

std::vector<AttentionOptions> all_options() {
  AttentionOptions linear{.alibi_slopes = slopes(4)};
  AttentionOptions both = linear;
  both.causal = false;
  both.alibi_slopes_after = {0.3f, 0.2f, 0.1f, 0.0f};
  AttentionOptions buckets{.buckets = BucketedBias{random_tensor({32, 4}, 7), 128}};
  AttentionOptions windowed = linear;
  windowed.sliding_window = 50;
  return {{}, linear, both, buckets, windowed};
}

TEST(Merge, HalvesOfTheKeysGiveTheWhole) {
  const Tensor q = random_tensor({2, 150, 4, 16}, 1);
  const Tensor k = random_tensor({2, 150, 2, 16}, 2), v = random_tensor({2, 150, 2, 16}, 3);
  for (const AttentionOptions& options : all_options()) {
    const Part whole = attend(q, k, v, options);
    for (const int64_t cut : {1, 64, 75, 128, 149}) {
      SCOPED_TRACE(cut);
      const Part a = attend_part(q, k, v, options, 0, cut), b = attend_part(q, k, v, options, cut, 150);
      expect_equal(merged(a, b), whole, 3e-6);
      expect_equal(merged(b, a), whole, 3e-6);
    }
  }
}

TEST(Merge, ManyPartsOfDifferentOrigin) {
  // Far keys by attention, near keys by decoding from a cache that holds only those.
  const Tensor q = random_tensor({1, 2, 4, 16}, 1);
  const Tensor k = random_tensor({1, 300, 2, 16}, 2), v = random_tensor({1, 300, 2, 16}, 3);
  const AttentionOptions options{.alibi_slopes = slopes(4), .query_offset = 298};
  const Part whole = attend(q, k, v, options);
  KvCache cache(1, 2, 16);
  cache.append(k.slice(1, 200, 300), v.slice(1, 200, 300));
  Part near{Tensor::empty(q.shape()), {}};
  AttentionState state;
  attention_decode(q, cache, {.alibi_slopes = slopes(4)}, near.out, &state);
  near.lse = state.lse;
  const Part middle = attend_part(q, k, v, options, 90, 200), far = attend_part(q, k, v, options, 0, 90);
  expect_equal(merged(merged(far, middle), near), whole, 3e-6);
  expect_equal(merged(far, merged(near, middle)), whole, 3e-6);
}

TEST(Merge, LogSumExpHoldsAtFarDistances) {
  // The parts' log-sum-exps are thousands apart, the result is the near part's.
  const Tensor q = random_tensor({1, 1, 1, 16}, 1);
  const Tensor k = random_tensor({1, 128, 1, 16}, 2), v = random_tensor({1, 128, 1, 16}, 3);
  const AttentionOptions far{.alibi_slopes = {0.5f}, .query_offset = 1 << 20},
      near{.alibi_slopes = {0.5f}, .query_offset = 127};
  const Part a = attend(q, k, v, far), b = attend(q, k, v, near);
  EXPECT_TRUE(std::abs(doubles(a.lse)[0] - doubles(b.lse)[0] + 0.5 * ((1 << 20) - 127)) <= 0.05);
  const Part both = merged(a, b);
  EXPECT_TRUE(same_bits(both.out, b.out));
  EXPECT_TRUE(same_bits(both.lse, b.lse));
}

TEST(Merge, PartsWithoutKeysTakeNoShare) {
  constexpr float infinity = std::numeric_limits<float>::infinity();
  Part a{random_tensor({1, 1, 2, 3}, 1), Tensor::from(std::vector<float>{0.5f, -infinity}, {1, 2, 1})};
  Part b{Tensor::empty({1, 1, 2, 3}), Tensor({1, 2, 1})};
  b.out.fill(std::numeric_limits<float>::quiet_NaN());
  b.lse.fill(-infinity);
  const Part both = merged(a, b);
  const std::vector<float> out = both.out.to_floats(), from = a.out.to_floats();
  for (size_t i = 0; i < 3; ++i) EXPECT_EQ(out[i], from[i]);
  for (size_t i = 3; i < 6; ++i) EXPECT_EQ(out[i], 0);
  EXPECT_EQ(both.lse.to_floats(), a.lse.to_floats());
}

TEST(Merge, InPlaceAndInNarrowerTypes) {
  const Tensor q = random_tensor({1, 40, 2, 8}, 1);
  const Tensor k = random_tensor({1, 40, 2, 8}, 2), v = random_tensor({1, 40, 2, 8}, 3);
  const AttentionOptions options{.alibi_slopes = slopes(2)};
  const Part whole = attend(q, k, v, options);
  Part a = attend_part(q, k, v, options, 0, 20);
  const Part b = attend_part(q, k, v, options, 20, 40);
  Tensor lse = Tensor::empty(a.lse.shape());
  for (const auto& [dtype, unit] : {std::pair{DType::bfloat16, 0x1p-8}, {DType::float16, 0x1p-11}}) {
    Tensor half = Tensor::empty(q.shape(), dtype);
    merge_attention(a.out, a.lse, b.out, b.lse, half, lse);
    EXPECT_TRUE(max_abs_diff(half, whole.out) <= unit * std::max(1.0, max_abs(doubles(whole.out))));
    const Tensor a_half = a.out.to(dtype), b_half = b.out.to(dtype);
    merge_attention(a_half, a.lse, b_half, b.lse, half, lse);
    EXPECT_TRUE(max_abs_diff(half, whole.out) <= 2 * unit * std::max(1.0, max_abs(doubles(whole.out))));
  }
  merge_attention(a.out, a.lse, b.out, b.lse, a.out, a.lse);
  expect_equal(a, whole, 3e-6);
}

TEST(Merge, ErrorsNameTheArgument) {
  const Tensor out({1, 2, 3, 4}), lse({1, 3, 2});
  Tensor result({1, 2, 3, 4}), result_lse({1, 3, 2}), wrong({1, 2, 3});
  expect_error([&] { merge_attention(wrong, lse, out, lse, result, result_lse); }, "[merge_attention] out_a");
  expect_error([&] { merge_attention(out, wrong, out, lse, result, result_lse); }, "[merge_attention] lse_a");
  expect_error([&] { merge_attention(out, lse, Tensor({1, 2, 3, 5}), lse, result, result_lse); }, "out_b");
  expect_error([&] { merge_attention(out, lse, out, {}, result, result_lse); }, "[merge_attention] lse_b");
  expect_error([&] { merge_attention(out, lse, out, lse, wrong, result_lse); }, "[merge_attention] out ");
  expect_error([&] { merge_attention(out, lse, out, lse, result, wrong); }, "[merge_attention] lse ");
}

/// Runs it normally, and with a caller that treats denormal numbers as zero: the results have the same bits.
template <class Run>
void expect_same_bits_under_any_setting(const Run& run) {
  const std::vector<Tensor> plain = run();
  const kernels::FlushDenormals flush;
  const std::vector<Tensor> flushed = run();
  for (size_t i = 0; i < plain.size(); ++i) EXPECT_TRUE(same_bits(flushed[i], plain[i])) << i;
}

TEST(Merge, TheCallersTreatmentOfDenormalsDoesNotShow) {
  // Values near the smallest normal number, 1.2e-38, so that results are on both sides of it.
  const Tensor q = random_tensor({1, 40, 2, 16}, 1), k = random_tensor({1, 200, 2, 16}, 2);
  const Tensor v = random_tensor({1, 200, 2, 16}, 3, 3e-38f);
  const AttentionOptions options{.alibi_slopes = slopes(2), .tolerance = 0x1p-11f};
  const Part a = attend_part(q, k, v, options, 0, 170), b = attend_part(q, k, v, options, 170, 200);
  expect_same_bits_under_any_setting([&] {
    const Part whole = merged(a, b);
    return std::vector{whole.out, whole.lse};
  });
  expect_same_bits_under_any_setting([&] {
    KvCache cache(1, 2, 16);
    cache.append(k, v);
    return std::vector{attention_decode(q, cache, options)};
  });
}

}  // namespace
}  // namespace alibi::test
