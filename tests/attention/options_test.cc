// Dropout, packed sequences, strided views, thread counts.
#include <cmath>

#include "attention/cases.h"
#include "attention/dropout.h"

namespace alibi::kernels {
namespace {

using namespace test;

/// Both passes on every instruction set, against the reference.
void expect_reference(const AttentionCase& c) {
  SCOPED_TRACE(c.name());
  AttentionTensors t(c);
  std::vector<double> out;
  attention_reference(t.q, t.k, t.v, c.options, out);
  AttentionReferenceGradients expected;
  attention_backward_reference(t.dout, t.q, t.k, t.v, c.options, expected);
  const double tolerance = c.dtype == DType::float32 ? 3e-6 : 2e-2;
  for_each_isa([&] {
    t.forward(c.options);
    t.backward(c.options);
    EXPECT_LE(relative_diff(doubles(t.out), out), tolerance);
    EXPECT_LE(relative_diff(doubles(t.dq), expected.dq), tolerance);
    EXPECT_LE(relative_diff(doubles(t.dk), expected.dk), tolerance);
    EXPECT_LE(relative_diff(doubles(t.dv), expected.dv), tolerance);
  });
}

TEST(AttentionDropout, ForwardAndBackwardSeeTheReferencesMask) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    AttentionCase c{.batch = 2, .queries = 97, .keys = 130, .heads = 4, .kv_heads = 2, .head_dim = 20, .dtype = dtype};
    c.options = {.alibi_slopes = slopes(4), .query_offset = 33, .dropout_p = 0.3f, .dropout_seed = 17};
    expect_reference(c);
  }
}

TEST(AttentionDropout, DropsTheStatedShareIndependently) {
  const kernels::DropoutMask mask(3, 1, 2);
  const uint32_t threshold = kernels::DropoutMask::threshold(0.25f);
  constexpr int64_t size = 1000;
  int64_t dropped = 0, both = 0, diagonal = 0;
  const auto drops = [&](int64_t i, int64_t j) { return !mask.keeps(i, 0, j, threshold); };
  for (int64_t i = 0; i < size; ++i) {
    for (int64_t j = 0; j < size; ++j) {
      const bool here = drops(i, j);
      dropped += here;
      both += here && drops(i, j + 1);
      diagonal += here && drops(i + 1, j + 1);
    }
  }
  // Standard deviations: 433 for the share, about 240 for pairs.
  EXPECT_NEAR(static_cast<double>(dropped), 250000, 2500);
  EXPECT_NEAR(static_cast<double>(both), 62500, 1500);
  EXPECT_NEAR(static_cast<double>(diagonal), 62500, 1500);
}

TEST(AttentionDropout, SeedHeadAndBatchMatter) {
  AttentionCase c{.batch = 2, .queries = 60, .keys = 60, .heads = 2, .kv_heads = 2};
  AttentionTensors t(c);
  for (Tensor* input : {&t.q, &t.k, &t.v}) input->fill(1);  // all rows alike: outputs differ by the mask alone
  t.forward({.causal = false, .dropout_p = 0.5f, .dropout_seed = 1});
  const Tensor first = t.out.clone();
  t.forward({.causal = false, .dropout_p = 0.5f, .dropout_seed = 1});
  EXPECT_TRUE(same_bits(first, t.out));
  EXPECT_FALSE(same_bits(first.slice(0, 0, 1), first.slice(0, 1, 2)));
  EXPECT_FALSE(same_bits(first.slice(2, 0, 1), first.slice(2, 1, 2)));
  t.forward({.causal = false, .dropout_p = 0.5f, .dropout_seed = 2});
  EXPECT_FALSE(same_bits(first, t.out));
}

TEST(AttentionPacked, EqualsSeparateCalls) {
  const std::vector<int32_t> q_offsets = {0, 1, 50, 50, 179, 243}, k_offsets = {0, 1, 50, 57, 257, 321};
  AttentionCase c{.queries = 243, .keys = 321, .heads = 4, .kv_heads = 2, .head_dim = 16};
  for (const bool causal : {true, false}) {
    AttentionTensors packed(c), separate(c);
    AttentionOptions options{.alibi_slopes = slopes(4), .causal = causal, .tolerance = causal ? 0x1p-24f : 0.0f};
    AttentionOptions packed_options = options;
    packed_options.cu_seqlens_q = q_offsets;
    packed_options.cu_seqlens_k = k_offsets;
    for_each_isa([&] {
      packed.forward(packed_options);
      Tensor dslopes({4}), dslopes_separate({4});
      packed.backward(packed_options, {.dslopes = &dslopes});
      separate.dk.fill(0);
      separate.dv.fill(0);
      for (size_t s = 0; s + 1 < q_offsets.size(); ++s) {
        const auto q_part = [&](const Tensor& x) { return x.slice(1, q_offsets[s], q_offsets[s + 1]); };
        const auto k_part = [&](const Tensor& x) { return x.slice(1, k_offsets[s], k_offsets[s + 1]); };
        Tensor out = q_part(separate.out), dq = q_part(separate.dq);
        Tensor dk = k_part(separate.dk), dv = k_part(separate.dv);
        AttentionState state;
        attention(q_part(separate.q), k_part(separate.k), k_part(separate.v), options, out, &state);
        attention_backward(q_part(separate.dout), q_part(separate.q), k_part(separate.k), k_part(separate.v), out,
                           state, options, dq, dk, dv, {.dslopes = &dslopes_separate});
      }
      EXPECT_TRUE(same_bits(packed.out, separate.out));
      EXPECT_TRUE(same_bits(packed.dq, separate.dq));
      // The number of chunks, and with it the order of sums, depends on the number of sequences.
      EXPECT_LE(max_abs_diff(packed.dk, separate.dk), 1e-5);
      EXPECT_LE(max_abs_diff(packed.dv, separate.dv), 1e-5);
      EXPECT_LE(max_abs_diff(dslopes, dslopes_separate), 1e-3);
    });
  }
}

TEST(AttentionPacked, SlopesOfEachSequence) {
  const std::vector<int32_t> q_offsets = {0, 1, 50, 50, 179, 243}, k_offsets = {0, 1, 50, 57, 257, 321};
  AttentionCase c{.queries = 243, .keys = 321, .heads = 4, .kv_heads = 2, .head_dim = 16};
  c.options.cu_seqlens_q = q_offsets;
  c.options.cu_seqlens_k = k_offsets;
  for (int i = 0; i < 5 * 4; ++i) c.options.alibi_slopes.push_back(0.07f * static_cast<float>(i));
  for (const DType dtype : {DType::float32, DType::bfloat16, DType::float16}) {
    c.dtype = dtype;
    for (const bool symmetric : {true, false}) {
      c.options.causal = false;
      c.options.alibi_slopes_after.clear();
      if (!symmetric) {
        for (int i = 0; i < 5 * 4; ++i) c.options.alibi_slopes_after.push_back(1 - 0.04f * static_cast<float>(i));
      }
      AttentionTensors t(c);
      std::vector<double> out;
      attention_reference(t.q, t.k, t.v, c.options, out);
      AttentionReferenceGradients expected;
      attention_backward_reference(t.dout, t.q, t.k, t.v, c.options, expected);
      ASSERT_EQ(expected.dslopes.size(), 20u);
      for (const float tolerance : {0.0f, 0x1p-24f}) {
        AttentionOptions options = c.options;
        options.tolerance = tolerance;
        const double bound = dtype == DType::float32 ? 3e-6 : 2e-2;
        for_each_isa([&] {
          Tensor dslopes({20});
          t.forward(options);
          t.backward(options, {.dslopes = &dslopes});
          EXPECT_LE(relative_diff(doubles(t.out), out), bound);
          EXPECT_LE(relative_diff(doubles(t.dq), expected.dq), bound);
          EXPECT_LE(relative_diff(doubles(t.dk), expected.dk), bound);
          EXPECT_LE(relative_diff(doubles(dslopes), expected.dslopes), bound);
        });
      }
    }
  }
  // What each sequence gives alone, with its own slopes.
  c.dtype = DType::float32;
  c.options.alibi_slopes_after.clear();
  AttentionTensors t(c);
  t.forward(c.options);
  for (size_t s = 0; s < 5; ++s) {
    AttentionOptions one{.causal = false};
    one.alibi_slopes.assign(c.options.alibi_slopes.begin() + static_cast<int64_t>(4 * s),
                            c.options.alibi_slopes.begin() + static_cast<int64_t>(4 * s + 4));
    const auto keys = [&](const Tensor& x) { return x.slice(1, k_offsets[s], k_offsets[s + 1]); };
    const Tensor part = attention(t.q.slice(1, q_offsets[s], q_offsets[s + 1]), keys(t.k), keys(t.v), one);
    EXPECT_TRUE(same_bits(t.out.slice(1, q_offsets[s], q_offsets[s + 1]), part)) << s;
  }
}

/// Keys and queries of the mask count from the start of the tensor, also where a sequence begins at an odd row.
TEST(AttentionPacked, DropsWhatTheReferenceDrops) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    AttentionCase c{.queries = 200, .keys = 230, .heads = 4, .kv_heads = 2, .head_dim = 16, .dtype = dtype};
    c.options = {.alibi_slopes = slopes(4), .dropout_p = 0.3f, .dropout_seed = 5};
    c.options.cu_seqlens_q = {0, 33, 70, 103, 200};
    c.options.cu_seqlens_k = {0, 35, 94, 129, 230};
    expect_reference(c);
  }
}

TEST(AttentionGroups, EqualRepeatedHeads) {
  const AttentionCase grouped{.queries = 130, .keys = 130, .heads = 12, .kv_heads = 3, .head_dim = 16};
  AttentionTensors t(grouped), repeated(AttentionCase{.queries = 130, .keys = 130, .heads = 12, .kv_heads = 12});
  repeated.q.copy_from(t.q);
  for (int64_t head = 0; head < 12; ++head) {
    repeated.k.slice(2, head, head + 1).copy_from(t.k.slice(2, head / 4, head / 4 + 1));
    repeated.v.slice(2, head, head + 1).copy_from(t.v.slice(2, head / 4, head / 4 + 1));
  }
  const AttentionOptions options{.alibi_slopes = slopes(12)};
  t.forward(options);
  repeated.forward(options);
  EXPECT_TRUE(same_bits(t.out, repeated.out));
}

/// A tensor like `values` inside a larger one full of NaN, with gaps between rows, heads and batch entries.
Tensor inside_nan(const Tensor& values, Tensor& around) {
  const Shape& s = values.shape();
  around = Tensor::empty({s[0] + 1, s[1] + 2, s[2] + 1, s[3] + 3}, values.dtype());
  around.fill(std::numeric_limits<float>::quiet_NaN());
  Tensor view = around.slice(0, 0, s[0]).slice(1, 1, s[1] + 1).slice(2, 1, s[2] + 1).slice(3, 2, s[3] + 2);
  view.copy_from(values);
  return view;
}

/// True if everything around the view is still NaN.
bool untouched_around(const Tensor& around, const Tensor& view) {
  Tensor copy = view.clone();
  Tensor marked = view;
  marked.fill(std::numeric_limits<float>::quiet_NaN());
  bool all = true;
  for (const float value : around.to_floats()) all &= std::isnan(value);
  marked.copy_from(copy);
  return all;
}

TEST(AttentionViews, NothingOutsideOfAViewIsReadOrWritten) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    for (const int64_t head_dim : {16, 20, 33}) {
      AttentionCase c{
          .batch = 2, .queries = 70, .keys = 83, .heads = 4, .kv_heads = 2, .head_dim = head_dim, .dtype = dtype};
      c.options = {.alibi_slopes = slopes(4), .query_offset = 13, .tolerance = 0x1p-24f};
      for_each_isa([&] {
        AttentionTensors plain(c), views(c);
        Tensor around[8];
        Tensor* const tensors[8] = {&views.q,   &views.k,  &views.v,  &views.dout,
                                    &views.out, &views.dq, &views.dk, &views.dv};
        for (size_t i = 0; i < 8; ++i) *tensors[i] = inside_nan(*tensors[i], around[i]);
        plain.forward(c.options);
        plain.backward(c.options);
        views.forward(c.options);
        views.backward(c.options);
        EXPECT_TRUE(same_bits(plain.out, views.out));
        EXPECT_TRUE(same_bits(plain.dq, views.dq));
        EXPECT_TRUE(same_bits(plain.dk, views.dk));
        EXPECT_TRUE(same_bits(plain.dv, views.dv));
        for (size_t i = 0; i < 8; ++i) EXPECT_TRUE(untouched_around(around[i], *tensors[i])) << "tensor " << i;
      });
    }
  }
}

TEST(AttentionThreads, TheSameBitsAtAnyNumber) {
  for (const DType dtype : {DType::float32, DType::bfloat16}) {
    for (const float tolerance : {0.0f, 0x1p-24f}) {
      AttentionCase c{
          .batch = 1, .queries = 500, .keys = 500, .heads = 4, .kv_heads = 2, .head_dim = 32, .dtype = dtype};
      c.options = {.alibi_slopes = slopes(4), .dropout_p = 0.1f, .tolerance = tolerance};
      AttentionTensors t(c);
      expect_same_bits_at_any_thread_count([&] {
        Tensor dslopes({4});
        t.forward(c.options);
        t.backward(c.options, {.dslopes = &dslopes});
        return std::vector<Tensor>{t.out.clone(), t.state.lse.clone(), t.dq.clone(),
                                   t.dk.clone(),  t.dv.clone(),        dslopes};
      });
    }
  }
}

}  // namespace
}  // namespace alibi::kernels
