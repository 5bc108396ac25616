// The AMX kernels where they differ from the others: blocks of 32, tiles that must be filled, the softmax without a
// maximum, and the waves of the backward pass. What every kernel must do is tested in forward_test.cc and its
// neighbours, which run on AMX too.
#include <cmath>

#include "attention/cases.h"
#include "attention/make_problem.h"
#include "attention/problem.h"

namespace alibi {
namespace {

using namespace test;

#define SKIP_WITHOUT_AMX()                                                             \
  if (best_isa() != Isa::amx) {                                                        \
    GTEST_SKIP() << "this CPU has no AMX, only " << name_of(best_isa()) << " at most"; \
  }                                                                                    \
  const RuntimeGuard guard;                                                            \
  set_isa(Isa::amx)

bool supported(const AttentionCase& c, const AttentionTensors& t) {
  return kernels::amx_kernel().supports(kernels::make_problem("test", t.q, t.k, t.v, t.out, c.options));
}

AttentionCase amx_case(int64_t queries, int64_t keys, int64_t heads = 1, int64_t head_dim = 32) {
  AttentionCase c{.queries = queries, .keys = keys, .heads = heads, .kv_heads = heads, .head_dim = head_dim};
  c.options.slopes = slopes(static_cast<int>(heads));
  c.options.query_offset = keys - queries;
  c.dtype = DType::bfloat16;
  return c;
}

double root_mean_square(const std::vector<double>& found, const std::vector<double>& expected) {
  if (found.size() != expected.size()) return std::numeric_limits<double>::infinity();
  double sum = 0;
  for (size_t i = 0; i < found.size(); ++i) sum += (found[i] - expected[i]) * (found[i] - expected[i]);
  return std::sqrt(sum / static_cast<double>(std::max<size_t>(1, found.size())));
}

/// The largest and the mean error at most twice those of the plain formula in bfloat16; the floor, in units of the
/// largest value, is for calls so small that the latter is next to nothing, its absolute part for gradients that cancel
/// to zero.
void expect_accurate(const char* name, const Tensor& found, const std::vector<double>& expected,
                     const std::vector<double>& plain) {
  const double largest = max_abs(expected), most = max_abs_diff(found, expected);
  EXPECT_TRUE(most <= 2 * max_abs_diff(plain, expected) + 0x1p-8 * largest + 1e-5)
      << name << ": " << most << " against " << max_abs_diff(plain, expected) << ", largest " << largest;
  const double mean = root_mean_square(doubles(found), expected);
  EXPECT_TRUE(mean <= 2 * root_mean_square(plain, expected) + 0x1p-11 * largest + 1e-6)
      << name << ": " << mean << " against " << root_mean_square(plain, expected) << " in the mean";
}

enum class Passes { forward, both };

void expect_right(const AttentionCase& c, Passes passes = Passes::both) {
  SCOPED_TRACE(c.name());
  AttentionTensors t(c);
  ASSERT_TRUE(supported(c, t));
  const PlainResult plain = plain_attention(c, t, passes == Passes::both);
  std::vector<double> out, lse;
  attention_reference(t.q, t.k, t.v, c.options, out, &lse);
  t.forward(c.options);
  expect_accurate("out", t.out, out, plain.out);
  const std::vector<double> found = doubles(t.state.lse);
  const double score = 1 + static_cast<double>(c.input_scale * c.input_scale);
  for (size_t i = 0; i < lse.size(); ++i) {
    EXPECT_TRUE(std::abs(found[i] - lse[i]) <= 6e-6 * score + 1e-6 * std::abs(lse[i])) << "lse " << i;
  }
  if (passes == Passes::forward) return;
  AttentionReferenceGradients expected;
  attention_backward_reference(t.dout, t.q, t.k, t.v, c.options, expected);
  t.backward(c.options);
  expect_accurate("dq", t.dq, expected.dq, plain.dq);
  expect_accurate("dk", t.dk, expected.dk, plain.dk);
  expect_accurate("dv", t.dv, expected.dv, plain.dv);
}

TEST(AttentionAmx, EveryLength) {
  SKIP_WITHOUT_AMX();
  for (int64_t length = 1; length <= 300; length += length < 67 ? 1 : 19) expect_right(amx_case(length, length));
}

TEST(AttentionAmx, EveryHeadDim) {
  SKIP_WITHOUT_AMX();
  for (const int64_t head_dim : {1, 8, 15, 16, 17, 32, 33, 48, 64, 80, 96, 127, 128, 160, 192, 200, 224, 256}) {
    expect_right(amx_case(70, 70, 2, head_dim));
  }
}

TEST(AttentionAmx, QueriesFromEveryOffset) {
  SKIP_WITHOUT_AMX();
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

TEST(AttentionAmx, Windows) {
  SKIP_WITHOUT_AMX();
  for (const int64_t window : {1, 2, 31, 32, 33, 63, 64, 65, 100, 1000}) {
    for (const bool causal : {true, false}) {
      AttentionCase c = amx_case(150, 161, 2);
      c.options.window = window;
      c.options.causal = causal;
      expect_right(c);
    }
  }
}

TEST(AttentionAmx, SlopesOfEveryForm) {
  SKIP_WITHOUT_AMX();
  AttentionCase c = amx_case(140, 150, 4);
  c.batch = 2;
  c.kv_heads = 2;
  c.options.causal = false;
  const float closed = std::numeric_limits<float>::infinity();
  for (const std::vector<float>& before :
       {std::vector<float>{}, {0, 1, 0x1p-16f, 1000}, {closed, 0.5f, closed, 0.1f}}) {
    for (const std::vector<float>& after : {std::vector<float>{}, {0.3f, closed, closed, 0}}) {
      if (before.empty() && !after.empty()) continue;
      c.options.slopes = before;
      c.options.slopes_after = after;
      expect_right(c);
    }
  }
  c.options.slopes_after.clear();
  c.options.slopes = {1, 0.5f, 0.25f, 0.125f, 0.01f, 0.02f, 0.03f, 0.04f};  // for each batch entry
  expect_right(c);
}

TEST(AttentionAmx, RandomCases) {
  SKIP_WITHOUT_AMX();
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

TEST(AttentionAmx, PackedSequences) {
  SKIP_WITHOUT_AMX();
  AttentionCase c = amx_case(301, 321, 4);
  c.kv_heads = 2;
  c.options.query_offset = 0;
  c.options.cu_seqlens_q = {0, 1, 50, 50, 179, 301};
  c.options.cu_seqlens_k = {0, 1, 50, 57, 199, 321};
  for (const bool causal : {true, false}) {
    c.options.causal = causal;
    AttentionTensors t(c);
    ASSERT_TRUE(supported(c, t));
    std::vector<double> out;
    attention_reference(t.q, t.k, t.v, c.options, out);
    AttentionReferenceGradients expected;
    attention_backward_reference(t.dout, t.q, t.k, t.v, c.options, expected);
    t.forward(c.options);
    t.backward(c.options);
    EXPECT_LE(relative_diff(doubles(t.out), out), 0x1p-7);
    EXPECT_LE(relative_diff(doubles(t.dq), expected.dq), 0x1p-6);
    EXPECT_LE(relative_diff(doubles(t.dk), expected.dk), 0x1p-6);
    EXPECT_LE(relative_diff(doubles(t.dv), expected.dv), 0x1p-6);
  }
}

TEST(AttentionAmx, LongRowsAndManyWaves) {
  SKIP_WITHOUT_AMX();
  AttentionCase grouped = amx_case(600, 630, 2);
  grouped.kv_heads = 1;
  expect_right(grouped);
  AttentionCase both_sides = amx_case(500, 500, 2);
  both_sides.options.causal = false;
  expect_right(both_sides);
  AttentionCase narrow = amx_case(900, 900, 1);
  narrow.options.window = 40;  // most pairs of spans are never visited
  expect_right(narrow);
  expect_right(amx_case(150, 4096));
}

TEST(AttentionAmx, ScoresOfEverySize) {
  // From scores of +-2, where the softmax needs no maximum, to +-1e4 and more.
  SKIP_WITHOUT_AMX();
  for (const float scale : {0.01f, 1.0f, 3.0f, 4.0f, 10.0f, 100.0f}) {
    for (const bool causal : {true, false}) {
      AttentionCase c = amx_case(200, 200, 2, 64);
      c.input_scale = scale;
      c.options.causal = causal;
      expect_right(c, scale <= 4 ? Passes::both : Passes::forward);
    }
  }
}

TEST(AttentionAmx, OneHugeKeyAndHugeValues) {
  SKIP_WITHOUT_AMX();
  for (const int64_t row : {0, 40, 299}) {
    const AttentionCase c = amx_case(300, 300, 1, 64);
    SCOPED_TRACE(row);
    AttentionTensors t(c);
    t.k.slice(1, row, row + 1).fill(1000);
    std::vector<double> out;
    attention_reference(t.q, t.k, t.v, c.options, out);
    t.forward(c.options);
    EXPECT_LE(relative_diff(doubles(t.out), out), 0x1p-7);
  }
  AttentionCase c = amx_case(300, 300, 1, 64);
  AttentionTensors t(c);
  t.v.copy_from(random_tensor(t.v.shape(), 8, 1e36f));
  std::vector<double> out;
  attention_reference(t.q, t.k, t.v, c.options, out);
  t.forward(c.options);
  EXPECT_LE(relative_diff(doubles(t.out), out), 0x1p-7);
}

TEST(AttentionAmx, SkippingKeepsItsBoundAndLeavesOutWork) {
  SKIP_WITHOUT_AMX();
  for (const bool causal : {true, false}) {
    for (const float scale : {1.0f, 5.0f}) {  // with and without a running maximum
      AttentionCase c = amx_case(1500, 1500, 4);
      c.options.causal = causal;
      c.input_scale = scale;
      SCOPED_TRACE(scale);
      AttentionTensors t(c);
      t.forward(c.options);
      EXPECT_EQ(t.state.stats.blocks_visited, t.state.stats.blocks_total);
      t.backward(c.options);
      const std::vector<double> out = doubles(t.out), lse = doubles(t.state.lse);
      const std::vector<double> dq = doubles(t.dq), dk = doubles(t.dk), dv = doubles(t.dv);
      double share = 1;
      for (const float tolerance : {0x1p-24f, 0x1p-11f}) {
        c.options.tolerance = tolerance;
        t.forward(c.options);
        t.backward(c.options);
        const AttentionStats& stats = t.state.stats;
        const double visited = static_cast<double>(stats.blocks_visited) / static_cast<double>(stats.blocks_total);
        EXPECT_LT(visited, share);
        share = visited;
        const double bound = 2 * static_cast<double>(tolerance) * max_abs(doubles(t.v));
        EXPECT_LE(max_abs_diff(t.out, out), bound + 0x1p-8 * max_abs(out));
        EXPECT_LE(max_abs_diff(t.state.lse, lse), static_cast<double>(tolerance) + 2e-5);
        EXPECT_LE(relative_diff(doubles(t.dq), dq), 0x1p-7);
        EXPECT_LE(relative_diff(doubles(t.dk), dk), 0x1p-7);
        EXPECT_LE(relative_diff(doubles(t.dv), dv), 0x1p-7);
      }
      EXPECT_LT(share, scale > 1 ? 0.95 : 0.8);
    }
  }
}

TEST(AttentionAmx, SkippingFindsFarKeysThatMatter) {
  SKIP_WITHOUT_AMX();
  AttentionCase c = amx_case(600, 600, 2, 64);
  c.options.slopes = {0.25f, 0.0f};
  for (const bool causal : {true, false}) {
    AttentionTensors t(c);
    c.options.causal = causal;
    t.k.slice(1, causal ? 3 : 590, causal ? 4 : 591).fill(40);  // wins wherever sum(q) > 0
    std::vector<double> out;
    attention_reference(t.q, t.k, t.v, c.options, out);
    c.options.tolerance = 0x1p-11f;
    t.forward(c.options);
    EXPECT_LE(relative_diff(doubles(t.out), out), 0x1p-7);
    c.options.tolerance = 0;
  }
}

TEST(AttentionAmx, SameBitsAtAnyThreadCount) {
  SKIP_WITHOUT_AMX();
  for (const float tolerance : {0.0f, 0x1p-11f}) {
    AttentionCase c = amx_case(1300, 1300, 4, 64);
    c.kv_heads = 2;
    c.options.tolerance = tolerance;
    AttentionTensors t(c);
    expect_same_bits_at_any_thread_count([&] {
      t.forward(c.options);
      t.backward(c.options);
      return std::vector<Tensor>{t.out.clone(), t.state.lse.clone(), t.dq.clone(), t.dk.clone(), t.dv.clone()};
    });
  }
}

TEST(AttentionAmx, MaskedRowsMayHoldAnything) {
  SKIP_WITHOUT_AMX();
  const AttentionCase c = amx_case(100, 100, 2, 64);
  AttentionTensors clean(c), bad(c);
  for (Tensor* tensor : {&bad.k, &bad.v}) tensor->slice(1, 70, 100).fill(std::numeric_limits<float>::quiet_NaN());
  bad.v.slice(1, 80, 90).fill(std::numeric_limits<float>::infinity());
  clean.forward(c.options);
  clean.backward(c.options);
  bad.forward(c.options);
  bad.backward(c.options);
  EXPECT_LE(max_abs_diff(bad.out.slice(1, 0, 70), doubles(clean.out.slice(1, 0, 70))), 0x1p-6);
  EXPECT_LE(max_abs_diff(bad.dq.slice(1, 0, 70), doubles(clean.dq.slice(1, 0, 70))), 0x1p-5);
  EXPECT_TRUE(std::isnan(max_abs(bad.out.slice(1, 70, 100).to_floats())));
}

TEST(AttentionAmx, LeavesTheRestToTheOtherKernels) {
  SKIP_WITHOUT_AMX();
  const auto refused = [](const AttentionCase& c) { return !supported(c, AttentionTensors(c)); };
  AttentionCase c = amx_case(64, 64);
  EXPECT_FALSE(refused(c));
  c.dtype = DType::float32;
  EXPECT_TRUE(refused(c));
  c = amx_case(64, 64);
  c.options.dropout = 0.1f;
  EXPECT_TRUE(refused(c));
  c = amx_case(64, 64);
  c.options.query_offset = 1;  // the last query lies beyond the keys
  EXPECT_TRUE(refused(c));
  c = amx_case(64, 64, 1, 257);
  EXPECT_TRUE(refused(c));
  c = amx_case(64, 64);
  set_isa(Isa::avx512_bf16);
  EXPECT_TRUE(refused(c));
}

}  // namespace
}  // namespace alibi
