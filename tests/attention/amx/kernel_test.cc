// The AMX kernels where they differ from the others: blocks of 32, tiles that must be filled, and the waves of the
// backward pass. What every kernel must do is tested in forward_test.cc and its neighbours, which run on AMX too.
#include "attention/amx/cases.h"

namespace alibi::kernels {
namespace {

using namespace test;

TEST_P(AttentionAmx, EveryLength) {
  for (int64_t length = 1; length <= 300; length += length < 67 ? 1 : 19) expect_right(amx_case(length, length));
}

TEST_P(AttentionAmx, EveryHeadDim) {
  for (const int64_t head_dim : {1, 8, 15, 16, 17, 32, 33, 48, 64, 80, 96, 127, 128, 160, 192, 200, 224, 256}) {
    expect_right(amx_case(70, 70, 2, head_dim));
  }
}

TEST_P(AttentionAmx, QueriesFromEveryOffset) {
  for (int64_t offset = 0; offset <= 66; offset += 6) {
    AttentionCase c = amx_case(50, 50 + offset, 2);
    expect_right(c);
    c.options.causal = false;
    expect_right(c);
    c = amx_case(50, 230, 2);  // keys that no query may see
    c.options.query_offset = offset;
    expect_right(c);
  }
}

TEST_P(AttentionAmx, Windows) {
  for (const int64_t window : {1, 2, 31, 32, 33, 63, 64, 65, 100, 1000}) {
    for (const bool causal : {true, false}) {
      AttentionCase c = amx_case(150, 161, 2);
      c.options.sliding_window = window;
      c.options.causal = causal;
      expect_right(c);
    }
  }
}

TEST_P(AttentionAmx, SlopesOfEveryForm) {
  AttentionCase c = amx_case(140, 150, 4);
  c.batch = 2;
  c.kv_heads = 2;
  c.options.causal = false;
  const float closed = std::numeric_limits<float>::infinity();
  for (const std::vector<float>& before :
       {std::vector<float>{}, {0, 1, 0x1p-16f, 1000}, {closed, 0.5f, closed, 0.1f}}) {
    for (const std::vector<float>& after : {std::vector<float>{}, {0.3f, closed, closed, 0}}) {
      if (before.empty() && !after.empty()) continue;
      c.options.alibi_slopes = before;
      c.options.alibi_slopes_after = after;
      expect_right(c);
    }
  }
  c.options.alibi_slopes_after.clear();
  c.options.alibi_slopes = {1, 0.5f, 0.25f, 0.125f, 0.01f, 0.02f, 0.03f, 0.04f};  // for each batch entry
  expect_right(c);
}

TEST_P(AttentionAmx, Buckets) {
  for (const auto& [buckets, distance] : std::vector<std::pair<int64_t, int>>{
           {32, 128}, {4, 3}, {8, 20}, {12, 31}, {40, 32}, {40, 33}, {64, 200}, {32, 1000}, {4, 100000}}) {
    for (const bool causal : {true, false}) {
      AttentionCase c = t5_case(257, 290, 2, buckets, distance);
      c.options.causal = causal;
      if (!causal) c.options.buckets = random_buckets(2, 22, 2 * buckets, distance);
      SCOPED_TRACE(distance);
      expect_right(c);
    }
  }
  for (int64_t offset = 0; offset <= 66; offset += 11) {
    AttentionCase c = t5_case(50, 230);
    c.options.query_offset = offset;
    c.options.causal = offset % 2 == 0;
    expect_right(c);
  }
  for (const int64_t window : {1, 31, 64, 140}) {
    AttentionCase c = t5_case(333, 333);
    c.options.sliding_window = window;
    expect_right(c);
    c.options.causal = false;
    expect_right(c);
  }
  AttentionCase large = t5_case(200, 200);
  for (const float bias : {-40.0f, 40.0f, 1000.0f}) {  // beyond what the softmax without a maximum takes
    large.options.buckets->table.fill(0);
    large.options.buckets->table.slice(0, 5, 7).fill(bias);
    expect_right(large, bias < 1000 ? Passes::both : Passes::forward);
  }
}

TEST_P(AttentionAmx, TablesByDistance) {
  for (AttentionCase c : cases_by_distance()) {
    c.dtype = DType::bfloat16;
    expect_right(c);
  }
}

TEST_P(AttentionAmx, BucketsAreNeverSkipped) {
  AttentionCase c = t5_case(400, 400);
  AttentionTensors t(c);
  t.k.fill(0);  // the norm bound alone would let every key go
  c.options.tolerance = 0x1p-11f;
  t.forward(c.options);
  EXPECT_EQ(t.state.stats.blocks_visited, t.state.stats.blocks_total);
}

TEST_P(AttentionAmx, Dropout) {
  for (const float dropout : {0.1f, 0.5f, 0.9f}) {
    for (int64_t length = 3; length <= 300; length += 37) {
      AttentionCase c = length % 2 == 0 ? t5_case(length, length + 21) : amx_case(length, length + 21, 2, 48);
      c.batch = 2;
      c.kv_heads = 1;
      c.options.dropout_p = dropout;
      c.options.dropout_seed = 5;
      c.options.causal = length % 3 != 0;
      expect_right(c);
    }
  }
  AttentionCase twelve = t5_case(130, 130, 12);  // of the paper's size
  twelve.options.dropout_p = 0.1f;
  expect_right(twelve);
  AttentionCase online = amx_case(260, 260, 2, 64);
  online.input_scale = 4;
  online.options.dropout_p = 0.25f;
  expect_right(online, Passes::forward);
}

TEST_P(AttentionAmx, DropsWhatTheOtherKernelsDrop) {
  // With equal scores and values that say which key they belong to, the output is the mask.
  AttentionCase c{.batch = 2, .queries = 64, .keys = 64, .heads = 3, .kv_heads = 3, .head_dim = 64};
  c.dtype = DType::bfloat16;
  c.options = {.causal = false, .dropout_p = 0.3f, .dropout_seed = 11};
  AttentionTensors t(c);
  ASSERT_TRUE(supported(c, t));
  t.q.fill(0);
  t.v.fill(0);
  for (int64_t row = 0; row < 64; ++row) t.v.slice(1, row, row + 1).slice(3, row, row + 1).fill(64);
  const auto mask = [&] {
    t.forward(c.options);
    std::vector<bool> kept;
    for (const float value : t.out.to_floats()) kept.push_back(value != 0);
    return kept;
  };
  const std::vector<bool> amx = mask();
  const auto share = static_cast<double>(std::count(amx.begin(), amx.end(), true)) / static_cast<double>(amx.size());
  EXPECT_NEAR(share, 0.7, 0.02);
  for (const Isa isa : available_isas()) {
    set_isa(isa);
    EXPECT_EQ(mask(), amx) << name_of(isa);
  }
}

TEST_P(AttentionAmx, StridedViewsWithBucketsAndDropout) {
  // Queries, keys and values side by side in one tensor, as a fused projection leaves them.
  AttentionCase c = t5_case(75, 75, 4);
  c.options.dropout_p = 0.2f;
  AttentionTensors plain(c), views(c);
  const auto view_of = [](Tensor& tensor, int64_t at, const Tensor& like) {
    Tensor view = tensor.slice(2, at, at + like.size(2));
    view.copy_from(like);
    return view;
  };
  Tensor inputs = Tensor::empty({1, 75, 12, 32}, DType::bfloat16), outputs = Tensor::empty(inputs.shape(), c.dtype);
  outputs.fill(std::numeric_limits<float>::quiet_NaN());
  views.q = view_of(inputs, 0, plain.q);
  views.k = view_of(inputs, 4, plain.k);
  views.v = view_of(inputs, 8, plain.v);
  views.dq = outputs.slice(2, 0, 4);
  views.dk = outputs.slice(2, 4, 8);
  views.dv = outputs.slice(2, 8, 12);
  for (AttentionTensors* t : {&plain, &views}) {
    t->forward(c.options);
    t->backward(c.options);
  }
  EXPECT_TRUE(same_bits(plain.out, views.out));
  EXPECT_TRUE(same_bits(plain.dq, views.dq.clone()));
  EXPECT_TRUE(same_bits(plain.dk, views.dk.clone()));
  EXPECT_TRUE(same_bits(plain.dv, views.dv.clone()));
}

TEST_P(AttentionAmx, RandomCases) {
  int supported_cases = 0;
  for (AttentionCase c : random_cases(80, 5)) {
    c.dtype = DType::bfloat16;
    const AttentionTensors t(c);
    if (!supported(c, t)) continue;
    ++supported_cases;
    expect_right(c);
  }
  EXPECT_GT(supported_cases, 15);
}

/// With large scores or sinks the softmax has a running maximum, which begins at the sink.
TEST_P(AttentionAmx, SinksWithARunningMaximum) {
  for (const float input_scale : {1.0f, 4.0f}) {
    AttentionCase c = amx_case(300, 330, 4, 64);
    c.input_scale = input_scale;
    c.options.sinks = {30, -60, 3, -std::numeric_limits<float>::infinity()};
    expect_right(c);
  }
}

TEST_P(AttentionAmx, PackedSequences) {
  AttentionCase c = amx_case(301, 321, 4);
  c.kv_heads = 2;
  c.options.query_offset = 0;
  c.options.cu_seqlens_q = {0, 1, 50, 50, 179, 301};
  c.options.cu_seqlens_k = {0, 1, 50, 57, 199, 321};
  for (const int kind : {0, 1, 2}) {
    c.options.causal = kind != 1;
    if (kind == 2) {
      c.options.alibi_slopes.clear();
      c.options.buckets = random_buckets(4, 3, 16, 40);
      c.options.dropout_p = 0.2f;
    }
    AttentionTensors t(c);
    ASSERT_TRUE(supported(c, t));
    std::vector<double> out;
    attention_reference(t.q, t.k, t.v, c.options, out);
    AttentionReferenceGradients expected;
    attention_backward_reference(t.dout, t.q, t.k, t.v, c.options, expected);
    BiasTensors bias(c);
    t.forward(c.options);
    t.backward(c.options, bias.gradients());
    bias.expect_right(c, expected);
    EXPECT_LE(relative_diff(doubles(t.out), out), 0x1p-7);
    EXPECT_LE(relative_diff(doubles(t.dq), expected.dq), 0x1p-6);
    EXPECT_LE(relative_diff(doubles(t.dk), expected.dk), 0x1p-6);
    EXPECT_LE(relative_diff(doubles(t.dv), expected.dv), 0x1p-6);
  }
}

TEST_P(AttentionAmx, LongRowsAndManyWaves) {
  AttentionCase grouped = amx_case(600, 630, 2);
  grouped.kv_heads = 1;
  expect_right(grouped);
  AttentionCase both_sides = amx_case(500, 500, 2);
  both_sides.options.causal = false;
  expect_right(both_sides);
  AttentionCase narrow = amx_case(900, 900, 1);
  narrow.options.sliding_window = 40;  // most pairs of spans are never visited
  expect_right(narrow);
  expect_right(amx_case(150, 4096));
  AttentionCase many_heads = amx_case(1090, 1090, 34, 16);  // more than are done at once
  many_heads.options.sliding_window = 70;
  expect_right(many_heads);
}

TEST_P(AttentionAmx, SameBitsAtAnyThreadCount) {
  for (const int kind : {0, 1, 2}) {
    AttentionCase c = amx_case(1300, 1300, 4, 64);
    c.kv_heads = 2;
    if (kind == 1) c.options.tolerance = 0x1p-11f;
    if (kind == 2) {
      c.options.alibi_slopes.clear();
      c.options.buckets = random_buckets(4, 3);
      c.options.dropout_p = 0.1f;
    }
    AttentionTensors t(c);
    expect_same_bits_at_any_thread_count([&] {
      Tensor bias(kind == 2 ? c.options.buckets->table.shape() : Shape{4});
      t.forward(c.options);
      t.backward(c.options,
                 kind == 2 ? AttentionBiasGradients{.dtable = &bias} : AttentionBiasGradients{.dslopes = &bias});
      return std::vector<Tensor>{t.out.clone(), t.state.lse.clone(), t.dq.clone(), t.dk.clone(), t.dv.clone(), bias};
    });
  }
}

TEST_P(AttentionAmx, LeavesTheRestToTheOtherKernels) {
  const auto refused = [](const AttentionCase& c) { return !supported(c, AttentionTensors(c)); };
  AttentionCase c = amx_case(64, 64);
  EXPECT_FALSE(refused(c));
  c.dtype = DType::float32;
  EXPECT_TRUE(refused(c));
  c = t5_case(64, 64);
  EXPECT_FALSE(refused(c));
  c.options.buckets->table.data<float>()[3] = -std::numeric_limits<float>::infinity();
  EXPECT_TRUE(refused(c));
  c = amx_case(64, 64);
  c.options.query_offset = 1;  // the last query lies beyond the keys
  EXPECT_TRUE(refused(c));
  c = amx_case(64, 64, 1, 257);
  EXPECT_TRUE(refused(c));
  c = amx_case(64, 64);
  core::set_bf16_speedup(1.19);  // on AVX512-BF16, the float32 kernel is then faster
  EXPECT_EQ(refused(c), GetParam() == Isa::avx512_bf16);
  core::set_bf16_speedup(1.2);
  EXPECT_FALSE(refused(c));
  set_isa(Isa::avx512);
  EXPECT_TRUE(refused(c));
}

ALIBI_TEST_ON_BF16_ISAS(AttentionAmx);

}  // namespace
}  // namespace alibi::kernels
