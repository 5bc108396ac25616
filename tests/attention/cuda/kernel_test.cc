// CUDA's kernels in emulated lanes, through the public functions. As for the CPU's kernels, their error against the
// reference in float64 is compared with that of the plain formula in the same data type.
#include <cmath>

#include "attention/cases.h"
#include "attention/cuda/emulated_device.h"

namespace alibi::kernels {
namespace {

using namespace test;

/// The results of a case on the device, copied to the CPU.
struct Found {
  Tensor out, lse, dq, dk, dv;
  AttentionStats stats;
  std::vector<float> dsinks;
};

/// Slopes' gradients are computed if there is a place for them, those of sinks if there are any.
Found run(const AttentionCase& c, const AttentionTensors& t, bool gradients, std::vector<float>* dslopes = nullptr) {
  const auto there = [](const Tensor& tensor) { return tensor.to(Device::cuda); };
  const Tensor q = there(t.q), k = there(t.k), v = there(t.v), dout = there(t.dout);
  Tensor out = there(t.out), dq = there(t.dq), dk = there(t.dk), dv = there(t.dv);
  AttentionState state;
  attention(q, k, v, c.options, out, &state);
  Found found = {out.to(Device::cpu), state.lse.to(Device::cpu), {}, {}, {}, count_blocks(state), {}};
  if (!gradients) return found;
  Tensor slopes_there;
  if (dslopes != nullptr) {
    slopes_there = Tensor({static_cast<int64_t>(c.options.alibi_slopes.size())}).to(Device::cuda);
  }
  Tensor sinks_there = Tensor({c.heads}).to(Device::cuda);
  attention_backward(dout, q, k, v, out, state, c.options, dq, dk, dv,
                     {.dslopes = dslopes != nullptr ? &slopes_there : nullptr,
                      .dsinks = !c.options.sinks.empty() ? &sinks_there : nullptr});
  if (!c.options.sinks.empty()) found.dsinks = sinks_there.to(Device::cpu).to_floats();
  if (dslopes != nullptr) *dslopes = slopes_there.to(Device::cpu).to_floats();
  found.dq = dq.to(Device::cpu);
  found.dk = dk.to(Device::cpu);
  found.dv = dv.to(Device::cpu);
  return found;
}

/// The gradient of a sink sums a product for each row, each of which is rounded with the row's output.
void expect_same_sinks(const AttentionCase& c, const AttentionTensors& t, const Found& found,
                       const AttentionReferenceGradients& expected) {
  const double unit = c.dtype == DType::bfloat16 ? 0x1p-8 : 0x1p-11;
  const double rows = static_cast<double>(c.batch * c.queries), columns = static_cast<double>(c.head_dim);
  for (size_t head = 0; head < found.dsinks.size(); ++head) {
    const double diff = std::abs(static_cast<double>(found.dsinks[head]) - expected.dsinks[head]);
    EXPECT_LE(diff, unit * std::sqrt(rows * columns) * (1 + max_abs(t.v.to_floats()) / 4)) << "dsinks " << head;
  }
}

/// The kernels' error may be twice the plain formula's.
void expect_right(const AttentionCase& c, bool gradients) {
  SCOPED_TRACE(c.name());
  const EmulatedDevice device(c.seed % 200 == 1);
  // Without room for the kernel of all gradients, with room for some sizes (99 KB), or for all.
  EmulatedDevice::noted().shared_bytes = c.seed % 3 == 0 ? 0 : c.seed % 3 == 1 ? 99 << 10 : 227 << 10;
  const AttentionTensors t(c);
  const Found found = run(c, t, gradients);
  std::vector<double> out, lse;
  attention_reference(t.q, t.k, t.v, c.options, out, &lse);
  const bool packed = !c.options.cu_seqlens_q.empty();
  const PlainResult plain = packed ? PlainResult{} : plain_attention(c, t, gradients);
  const double unit = c.dtype == DType::bfloat16 ? 0x1p-8 : 0x1p-11;
  const auto expect = [&](const char* name, const Tensor& result, const std::vector<double>& expected,
                          const std::vector<double>& yardstick, double floor) {
    const double error = packed ? 0 : max_abs_diff(yardstick, expected);
    EXPECT_TRUE(max_abs_diff(result, expected) <= 2 * error + floor * unit * (max_abs(expected) + 0.5))
        << name << ": " << max_abs_diff(result, expected) << " against " << error << " of the plain formula, largest "
        << max_abs(expected);
  };
  expect("out", found.out, out, plain.out, packed ? 2 : 1);
  const std::vector<double> lse_found = doubles(found.lse);
  for (size_t i = 0; i < lse.size(); ++i) {
    if (lse_found[i] == lse[i]) continue;  // -infinity
    const double score = 1 + static_cast<double>(c.input_scale * c.input_scale);
    EXPECT_TRUE(std::abs(lse_found[i] - lse[i]) <= 8e-6 * score + 1e-6 * std::abs(lse[i]))
        << "lse " << i << ": " << lse_found[i] << ", expected " << lse[i];
  }
  if (!gradients) return;
  AttentionReferenceGradients expected;
  attention_backward_reference(t.dout, t.q, t.k, t.v, c.options, expected);
  expect("dq", found.dq, expected.dq, plain.dq, 3);
  expect("dk", found.dk, expected.dk, plain.dk, 3);
  expect("dv", found.dv, expected.dv, plain.dv, 3);
  expect_same_sinks(c, t, found, expected);
}

/// Cases that the device supports, of both types alternately.
std::vector<AttentionCase> cases_for_device(int count, uint64_t seed) {
  std::vector<AttentionCase> cases;
  for (AttentionCase c : random_cases(count, seed)) {
    c.dtype = cases.size() % 2 == 0 ? DType::bfloat16 : DType::float16;
    c.head_dim = (c.head_dim + 7) / 8 * 8;
    c.options.buckets = {};
    c.options.softcap = 0;
    c.options.sliding_window_after = 0;
    cases.push_back(c);
  }
  return cases;
}

TEST(AttentionCuda, RandomCases) {
  for (const AttentionCase& c : cases_for_device(30, 1)) expect_right(c, true);
}

TEST(AttentionCuda, EveryLengthAroundTheTiles) {
  uint64_t seed = 0;
  for (const int64_t length : {1, 2, 15, 17, 63, 64, 65, 127, 128, 129, 193}) {
    for (const int64_t head_dim : {32, 64, 128, 256}) {
      AttentionCase c{.queries = length, .keys = length, .head_dim = head_dim, .seed = ++seed};
      c.dtype = seed % 2 == 0 ? DType::bfloat16 : DType::float16;
      c.options.alibi_slopes = {0.3f};
      c.options.causal = seed % 3 != 0;
      expect_right(c, length < 100 || head_dim == 64);
    }
  }
}

TEST(AttentionCuda, WindowsThatEndInTheCornerOfATile) {
  for (const int64_t window : {1, 63, 64, 65, 127, 128}) {
    for (const bool causal : {true, false}) {
      AttentionCase c{.queries = 200, .keys = 200, .head_dim = 32, .dtype = DType::bfloat16};
      c.options.sliding_window = window;
      c.options.causal = causal;
      expect_right(c, true);
    }
  }
}

TEST(AttentionCuda, PackedSequences) {
  AttentionCase c{.queries = 300, .keys = 330, .heads = 3, .kv_heads = 1, .head_dim = 64, .dtype = DType::bfloat16};
  c.options.alibi_slopes = slopes(3);
  c.options.cu_seqlens_q = {0, 1, 130, 130, 170, 300};
  c.options.cu_seqlens_k = {0, 5, 134, 140, 140, 330};
  for (const bool causal : {true, false}) {
    c.options.causal = causal;
    expect_right(c, true);
    c.options.tolerance = 0x1p-24f;
    expect_right(c, true);
  }
}

TEST(AttentionCuda, SlopesOfEveryKind) {
  constexpr float closed = std::numeric_limits<float>::infinity();
  AttentionCase c{.batch = 2, .queries = 150, .keys = 150, .heads = 4, .kv_heads = 2, .head_dim = 32};
  c.dtype = DType::float16;
  c.options.alibi_slopes = {0, 0.5f, 3, 0.01f, 1e-3f, 0.2f, 0, 1};  // of each batch entry
  expect_right(c, true);
  c.options.causal = false;
  expect_right(c, true);
  c.options.alibi_slopes = {0, 0.5f, closed, 0.01f};
  c.options.alibi_slopes_after = {1, closed, 0.5f, 0};
  expect_right(c, true);
  c.options.alibi_slopes = {1e6f, 1e20f, 0x1p126f, 100};
  c.options.alibi_slopes_after = {};
  expect_right(c, true);
}

TEST(AttentionCuda, QueriesFarBeyondTheKeysKeepTheirPrecision) {
  AttentionCase c{.queries = 60, .keys = 200, .heads = 4, .kv_heads = 4, .head_dim = 32, .dtype = DType::float16};
  c.options.alibi_slopes = slopes(4);
  for (const int64_t offset : {int64_t{1000000}, int64_t{-1000000}, int64_t{1} << 35}) {
    c.options.query_offset = offset;
    c.options.causal = offset > 0;
    expect_right(c, true);
  }
}

TEST(AttentionCuda, LargeScoresAndScalesOfEitherSign) {
  AttentionCase c{.queries = 100, .keys = 100, .heads = 2, .kv_heads = 2, .head_dim = 64, .dtype = DType::bfloat16};
  c.options.alibi_slopes = {0.5f, 0.01f};
  c.options.softmax_scale = -0.3f;
  expect_right(c, true);
  c.options.softmax_scale = 0;
  c.input_scale = 30;
  expect_right(c, false);
}

TEST(AttentionCuda, RowsWithoutKeysAreZero) {
  AttentionCase c{.queries = 200, .keys = 90, .heads = 2, .kv_heads = 1, .head_dim = 16, .dtype = DType::bfloat16};
  c.options.query_offset = -150;  // the first 150 queries, more than a tile, come before every key
  for (const bool backwards : {false, true}) {
    const EmulatedDevice device(backwards);
    const AttentionTensors t(c);
    const Found found = run(c, t, true);
    EXPECT_EQ(max_abs(found.out.slice(1, 0, 150).to_floats()), 0);
    EXPECT_TRUE(std::isinf(found.lse.to_floats()[149]));
    EXPECT_TRUE(std::isfinite(found.lse.to_floats()[150]));
    EXPECT_EQ(max_abs(found.dq.slice(1, 0, 150).to_floats()), 0);
    EXPECT_EQ(max_abs(found.dk.slice(1, 50, 90).to_floats()), 0);
  }
}

TEST(AttentionCuda, NoKeys) {
  const AttentionCase c{.queries = 5, .keys = 0, .heads = 2, .kv_heads = 2, .dtype = DType::bfloat16};
  const EmulatedDevice device;
  const AttentionTensors t(c);
  const Found found = run(c, t, false);
  EXPECT_EQ(max_abs(found.out.to_floats()), 0);
  EXPECT_TRUE(std::isinf(found.lse.to_floats()[4]));
}

TEST(AttentionCuda, NanShowsWhereItIsSeenAndInNoOtherTile) {
  const AttentionCase c{.queries = 300, .keys = 300, .head_dim = 32, .dtype = DType::bfloat16};
  const EmulatedDevice device;
  for (Tensor AttentionTensors::*input : {&AttentionTensors::q, &AttentionTensors::k, &AttentionTensors::v}) {
    AttentionTensors t(c);
    (t.*input).slice(1, 200, 201).slice(3, 5, 6).fill(std::numeric_limits<float>::quiet_NaN());
    const Found found = run(c, t, true);
    EXPECT_TRUE(std::isnan(max_abs(found.out.slice(1, 200, 201).to_floats())));
    EXPECT_TRUE(std::isnan(max_abs(found.dq.slice(1, 200, 201).to_floats())));
    EXPECT_TRUE(std::isfinite(max_abs(found.out.slice(1, 0, 128).to_floats())));
    EXPECT_TRUE(std::isfinite(max_abs(found.dq.slice(1, 0, 128).to_floats())));
  }
}

TEST(AttentionCuda, ViewsOfOneProduct) {
  // q, k and v lie side by side in the rows of one tensor, dq, dk and dv in another.
  constexpr int64_t length = 70, heads = 2, head_dim = 40;
  AttentionCase c{.queries = length, .keys = length, .heads = heads, .kv_heads = heads, .head_dim = head_dim};
  c.dtype = DType::bfloat16;
  c.options.alibi_slopes = slopes(heads);
  const EmulatedDevice device;
  const AttentionTensors t(c);
  const Found expected = run(c, t, true);
  Tensor inputs = Tensor({1, length, 3 * heads, head_dim}, c.dtype).to(Device::cuda), gradients = inputs.clone();
  const auto part = [&](const Tensor& of, int64_t i) { return of.slice(2, i * heads, (i + 1) * heads); };
  Tensor q = part(inputs, 0), k = part(inputs, 1), v = part(inputs, 2);
  q.copy_from(t.q.to(Device::cuda));
  k.copy_from(t.k.to(Device::cuda));
  v.copy_from(t.v.to(Device::cuda));
  Tensor out = t.out.to(Device::cuda);
  AttentionState state;
  attention(q, k, v, c.options, out, &state);
  Tensor dq = part(gradients, 0), dk = part(gradients, 1), dv = part(gradients, 2);
  attention_backward(t.dout.to(Device::cuda), q, k, v, out, state, c.options, dq, dk, dv);
  EXPECT_TRUE(same_bits(out.to(Device::cpu), expected.out));
  EXPECT_EQ(max_abs_diff(dq, expected.dq), 0);
  EXPECT_EQ(max_abs_diff(dk, expected.dk), 0);
  EXPECT_EQ(max_abs_diff(dv, expected.dv), 0);
}

TEST(AttentionCuda, WhatItDoesNotTakeIsRefused) {
  const EmulatedDevice device;
  const auto refused = [&](AttentionCase c, const char* why) {
    const AttentionTensors t(c);
    expect_error([&] { run(c, t, false); }, std::string("[attention] 'cuda' does not support this call: ") + why);
  };
  AttentionCase c{.queries = 10, .keys = 10, .heads = 2, .kv_heads = 2, .head_dim = 16, .dtype = DType::bfloat16};
  AttentionCase other = c;
  other.dtype = DType::float32;
  refused(other, "q is float32, expected bfloat16 or float16");
  other = c;
  other.head_dim = 20;
  refused(other, "head_dim is 20, expected a multiple of 8 up to 256");
  other.head_dim = 264;
  refused(other, "head_dim is 264");
  other = c;
  other.options.dropout_p = 0.1f;
  refused(other, "dropout_p is 0.1");
  other.options = {.softmax_scale = 0x1p70f};
  refused(other, "softmax_scale is 1.1805916e+21");
  other.options = {.softcap = 3};
  refused(other, "softcap is 3");
  other.options = {.causal = false, .sliding_window = 5, .sliding_window_after = 3};
  refused(other, "sliding_window_after is set");
  // Rows that are not 16 bytes apart.
  const Tensor wide = random_tensor({1, 10, 2, 20}, 1, 1, c.dtype).to(Device::cuda);
  const Tensor narrow = wide.slice(3, 0, 16);
  expect_error([&] { attention(narrow, narrow, narrow); }, "q has rows that do not begin at a multiple of 16 bytes");
  // The strides of axes with one element do not matter.
  const Tensor head = Tensor::view(wide.raw(), {1, 10, 1, 16}, c.dtype, {3, 40, 5, 1}, Device::cuda);
  EXPECT_EQ(attention(head, head, head).to_floats(), attention(head.clone(), head.clone(), head.clone()).to_floats());
}

/// Two queries in a tile: the bias of the empty rows after them could become arbitrarily large beside far keys.
TEST(AttentionCuda, RowsThatAreNotThereWeighNothing) {
  AttentionCase c{.queries = 2, .keys = 200, .head_dim = 64};
  c.options = {.causal = false, .query_offset = 100};
  for (const auto& [dtype, slope] : {std::pair{DType::float16, 0.5f}, {DType::bfloat16, 3.0f}}) {
    c.dtype = dtype;
    c.options.alibi_slopes = {slope};
    expect_right(c, true);
  }
}

TEST(AttentionCuda, GradientsOfSlopes) {
  AttentionCase c{.batch = 2, .queries = 150, .keys = 170, .heads = 4, .kv_heads = 2, .head_dim = 32};
  c.dtype = DType::float16;
  const EmulatedDevice device;
  const auto expect = [&] {
    SCOPED_TRACE(c.name());
    const AttentionTensors t(c);
    std::vector<float> dslopes;
    run(c, t, true, &dslopes);
    AttentionReferenceGradients expected;
    attention_backward_reference(t.dout, t.q, t.k, t.v, c.options, expected);
    EXPECT_LE(relative_diff(dslopes, expected.dslopes), 4e-3);
  };
  c.options.alibi_slopes = slopes(4);
  expect();
  c.options.alibi_slopes = {0.1f, 0.2f, 0.3f, 0.4f, 0.5f, 0.6f, 0.7f, 0.8f};
  c.options.causal = false;
  expect();
  c.options.alibi_slopes_after = {0.3f, 0.3f, 0.3f, 0.3f};
  expect();
}

TEST(AttentionCuda, Sinks) {
  AttentionCase c{.batch = 2, .queries = 150, .keys = 170, .heads = 4, .kv_heads = 2, .head_dim = 32};
  c.options.alibi_slopes = slopes(4);
  c.options.sinks = {3, -2, -std::numeric_limits<float>::infinity(), 40};
  const auto expect = [&] {
    expect_right(c, true);
    const EmulatedDevice device;
    const AttentionTensors t(c);
    std::vector<float> dslopes;
    run(c, t, true, &dslopes);
    AttentionReferenceGradients expected;
    attention_backward_reference(t.dout, t.q, t.k, t.v, c.options, expected);
    EXPECT_LE(relative_diff(dslopes, expected.dslopes), c.dtype == DType::bfloat16 ? 3.2e-2 : 4e-3) << c.name();
  };
  for (const DType dtype : {DType::bfloat16, DType::float16}) {
    c.dtype = dtype;
    expect();
    c.options.query_offset = 90;  // the last queries are past the last key
    expect();
    c.options.query_offset.reset();
    c.options.tolerance = 0x1p-11f;
    expect();
  }
  // A head with a sink alone, and rows that see no key.
  c.options.query_offset = -150;
  const EmulatedDevice device;
  const AttentionTensors t(c);
  const Found found = run(c, t, true);
  EXPECT_EQ(max_abs(found.out.slice(1, 0, 150).to_floats()), 0);
  EXPECT_NEAR(found.lse.to_floats()[0], 3, 2e-5);
}

/// A sink is mass that is there before any key is visited.
TEST(AttentionCuda, ASinkLetsMoreKeysBeSkipped) {
  AttentionCase c{.queries = 400, .keys = 400, .head_dim = 32, .dtype = DType::bfloat16};
  c.options.alibi_slopes = {0.05f};
  c.options.tolerance = 0x1p-11f;
  const EmulatedDevice device;
  const AttentionTensors t(c);
  const int64_t without = run(c, t, false).stats.blocks_visited;
  c.options.sinks = {12};
  EXPECT_LT(run(c, t, false).stats.blocks_visited, without);
}

TEST(AttentionCuda, TheSameBitsInAnyOrder) {
  AttentionCase c{.queries = 300, .keys = 300, .heads = 4, .kv_heads = 2, .head_dim = 64, .dtype = DType::bfloat16};
  c.options = {.alibi_slopes = slopes(4), .causal = false, .tolerance = 0x1p-11f};
  const AttentionTensors t(c);
  std::vector<Found> found;
  std::vector<std::vector<float>> dslopes(2);
  for (const bool backwards : {false, true}) {
    const EmulatedDevice device(backwards);
    found.push_back(run(c, t, true, &dslopes[found.size()]));
  }
  for (Tensor Found::*result : {&Found::out, &Found::lse, &Found::dq, &Found::dk, &Found::dv}) {
    EXPECT_TRUE(same_bits(found[0].*result, found[1].*result));
  }
  EXPECT_EQ(dslopes[0], dslopes[1]);
}

}  // namespace
}  // namespace alibi::kernels
