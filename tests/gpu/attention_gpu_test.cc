// Attention on a GPU against the float64 reference and the CPU's kernels: only on a machine that has one
// (scripts/gpu-check). What the kernels compute is also tested without, under the emulator: tests/attention/cuda/.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <thread>

#include "alibi/stream.h"
#include "attention/cases.h"
#include "attention/gates.h"

namespace alibi::test {
namespace {

/// A stream that waits for none but itself, the default one included.
class OwnStream {
 public:
  OwnStream() { EXPECT_EQ(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), cudaSuccess); }
  ~OwnStream() { cudaStreamDestroy(stream_); }
  OwnStream(const OwnStream&) = delete;
  OwnStream& operator=(const OwnStream&) = delete;
  void* get() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

/// The inputs of a case on the GPU, and what comes back from it.
class OnGpu {
 public:
  explicit OnGpu(const AttentionTensors& t)
      : q_(t.q.to(Device::cuda)),
        k_(t.k.to(Device::cuda)),
        v_(t.v.to(Device::cuda)),
        dout_(t.dout.to(Device::cuda)),
        out_(t.out.to(Device::cuda)),
        dq_(t.dq.to(Device::cuda)),
        dk_(t.dk.to(Device::cuda)),
        dv_(t.dv.to(Device::cuda)) {}

  void forward(const AttentionOptions& options) { attention(q_, k_, v_, there(options), out_, &state_); }
  void backward(const AttentionOptions& options) {
    if (options.log_decay) dgates_ = Tensor(options.log_decay->shape()).to(Device::cuda);
    attention_backward(dout_, q_, k_, v_, out_, state_, there(options), dq_, dk_, dv_,
                       {.dlog_decay = options.log_decay ? &dgates_ : nullptr});
  }
  void both(const AttentionOptions& options) {
    forward(options);
    backward(options);
  }

  Tensor out() const { return out_.to(Device::cpu); }
  Tensor lse() const { return state_.lse.to(Device::cpu); }
  Tensor dq() const { return dq_.to(Device::cpu); }
  Tensor dk() const { return dk_.to(Device::cpu); }
  Tensor dv() const { return dv_.to(Device::cpu); }
  Tensor dgates() const { return dgates_.to(Device::cpu); }
  std::vector<Tensor> all() const { return {out(), lse(), dq(), dk(), dv()}; }
  AttentionState& state() { return state_; }
  double visited() const {
    return static_cast<double>(count_blocks(state_).blocks_visited) /
           static_cast<double>(count_blocks(state_).blocks_total);
  }

 private:
  static AttentionOptions there(AttentionOptions options) {
    if (options.log_decay) options.log_decay = options.log_decay->to(Device::cuda);
    return options;
  }

  Tensor q_, k_, v_, dout_, out_, dq_, dk_, dv_, dgates_;
  AttentionState state_;
};

double unit(DType dtype) { return dtype == DType::float16 ? 0x1p-11 : 0x1p-8; }

/// The error may be twice that of the plain formula in the same type; the floor is for sizes where that is nothing.
void expect_near(const char* what, const Tensor& found, const std::vector<double>& expected,
                 const std::vector<double>& plain, double floor) {
  const double error = max_abs_diff(found, expected), yardstick = max_abs_diff(plain, expected);
  EXPECT_TRUE(error <= 2 * yardstick + floor)
      << what << ": " << error << " against " << yardstick << " of the plain formula, floor " << floor;
}

/// Both passes in float64.
struct Expected {
  Expected(const AttentionTensors& t, const AttentionOptions& options) {
    attention_reference(t.q, t.k, t.v, options, out, &lse);
    attention_backward_reference(t.dout, t.q, t.k, t.v, options, gradients);
  }

  std::vector<double> out, lse;
  AttentionReferenceGradients gradients;
};

void expect_both_passes(const AttentionCase& c) {
  SCOPED_TRACE(c.name());
  const AttentionTensors t(c);
  OnGpu run(t);
  run.both(c.options);
  const auto [out, lse, expected] = Expected(t, c.options);
  const PlainResult plain = plain_attention(c, t, true);
  const double rounding = unit(c.dtype);
  expect_near("out", run.out(), out, plain.out, max_abs(out) * rounding);
  // Where one key has all the weight, dP and delta cancel: what rounding leaves is measured by them.
  const double dp = max_abs(t.dout.to_floats()) * max_abs(t.v.to_floats());
  const double scale =
      c.options.softmax_scale != 0 ? std::abs(c.options.softmax_scale) : 1 / std::sqrt(static_cast<double>(c.head_dim));
  const double row = 2 * rounding * dp * scale;
  expect_near("dq", run.dq(), expected.dq, plain.dq,
              2 * rounding * max_abs(expected.dq) + row * max_abs(t.k.to_floats()));
  expect_near("dk", run.dk(), expected.dk, plain.dk,
              2 * rounding * max_abs(expected.dk) + row * max_abs(t.q.to_floats()));
  expect_near("dv", run.dv(), expected.dv, plain.dv, 2 * rounding * max_abs(expected.dv));
  const std::vector<double> found = doubles(run.lse());
  ASSERT_EQ(found.size(), lse.size());
  for (size_t i = 0; i < lse.size(); ++i) {
    if (found[i] == lse[i]) continue;  // -infinity
    ASSERT_TRUE(std::abs(found[i] - lse[i]) <= 2e-5 + 1e-6 * std::abs(lse[i]))
        << "lse " << i << ": " << found[i] << ", expected " << lse[i];
  }
}

class GpuAttention : public ::testing::TestWithParam<DType> {};
INSTANTIATE_TEST_SUITE_P(Types, GpuAttention, ::testing::Values(DType::bfloat16, DType::float16),
                         [](const auto& parameter) { return name_of(parameter.param); });

/// As the random cases of the CPU's tests, as far as the GPU's kernels go: docs/how-to/gpu.md.
std::vector<AttentionCase> gpu_cases(DType dtype) {
  constexpr int64_t head_dims[] = {64, 128, 32, 96, 256, 64, 80, 128};
  std::vector<AttentionCase> cases = random_cases(64, 5);
  for (size_t i = 0; i < cases.size(); ++i) {
    AttentionCase& c = cases[i];
    c.dtype = dtype;
    c.head_dim = head_dims[i % std::size(head_dims)];
    c.options.softcap = 0;
    c.options.sliding_window_after = 0;
    if (c.options.buckets) {
      c.options.buckets.reset();
      c.options.alibi_slopes = slopes(static_cast<int>(c.heads));
    }
  }
  return cases;
}

TEST_P(GpuAttention, BothPassesAreTheReferenceWithinRounding) {
  for (const AttentionCase& c : gpu_cases(GetParam())) expect_both_passes(c);
}

/// What runs under compute-sanitizer: every kernel, whole tiles and parts of some, both ways of the skip rule.
TEST_P(GpuAttention, EveryKernelOnFewTiles) {
  for (const int64_t head_dim : {64, 128, 96, 256}) {
    for (const bool causal : {true, false}) {
      AttentionCase c{.queries = 150, .keys = 290, .heads = 2, .kv_heads = 1, .head_dim = head_dim};
      c.dtype = GetParam();
      c.options.alibi_slopes = {0.5f, 0.01f};
      c.options.causal = causal;
      c.options.tolerance = 0x1p-11f;
      expect_both_passes(c);
    }
  }
}

TEST_P(GpuAttention, EveryKernelOnFewTilesWithGates) {
  const double tolerance = GetParam() == DType::bfloat16 ? 2e-2 : 4e-3;
  for (const int64_t head_dim : {64, 128, 96, 256}) {
    for (const Gates kind : {Gates::mild, Gates::strong, Gates::sharp, Gates::documents}) {
      AttentionCase c{.queries = 150, .keys = 290, .heads = 2, .kv_heads = 1, .head_dim = head_dim};
      c.dtype = GetParam();
      c.options.log_decay = random_gates({1, 290, 2}, 3, kind);
      c.options.sinks = {1, -2};
      c.options.tolerance = 0x1p-24f;
      SCOPED_TRACE(c.name());
      const AttentionTensors t(c);
      OnGpu run(t);
      run.both(c.options);
      const auto [out, lse, expected] = Expected(t, c.options);
      EXPECT_LE(max_abs_diff(run.lse(), lse), 2e-5);
      EXPECT_LE(max_abs_diff(run.out(), out), tolerance * max_abs(out));
      EXPECT_LE(max_abs_diff(run.dq(), expected.dq), tolerance * max_abs(expected.dq));
      EXPECT_LE(max_abs_diff(run.dk(), expected.dk), tolerance * max_abs(expected.dk));
      EXPECT_LE(max_abs_diff(run.dv(), expected.dv), tolerance * max_abs(expected.dv));
      EXPECT_LE(max_abs_diff(run.dgates(), expected.dlog_decay), tolerance * max_abs(expected.dlog_decay));
    }
  }
}

TEST_P(GpuAttention, EveryLengthAroundTheTiles) {
  for (const int64_t length : {1, 2, 15, 16, 17, 63, 64, 65, 127, 128, 129, 191, 193, 255, 257, 320}) {
    for (const int64_t head_dim : {64, 128}) {
      AttentionCase c{.queries = length, .keys = length, .heads = 2, .kv_heads = 1, .head_dim = head_dim};
      c.dtype = GetParam();
      c.options.alibi_slopes = slopes(2);
      c.options.causal = length % 2 == 1;
      expect_both_passes(c);
    }
  }
}

TEST_P(GpuAttention, PackedSequencesAreEachOnItsOwn) {
  const std::vector<int32_t> offsets = {0, 1, 70, 70, 200, 333};
  AttentionCase packed{.queries = 333, .keys = 333, .heads = 4, .kv_heads = 2, .head_dim = 64};
  packed.dtype = GetParam();
  packed.options.alibi_slopes = slopes(4);
  packed.options.cu_seqlens_q = packed.options.cu_seqlens_k = offsets;
  const AttentionTensors t(packed);
  OnGpu run(t);
  run.both(packed.options);
  const auto [out, lse, expected] = Expected(t, packed.options);
  const double rounding = 4 * unit(packed.dtype);
  EXPECT_TRUE(relative_diff(run.out(), out) <= rounding);
  EXPECT_TRUE(relative_diff(run.dq(), expected.dq) <= rounding);
  EXPECT_TRUE(relative_diff(run.dk(), expected.dk) <= rounding);
  EXPECT_TRUE(relative_diff(run.dv(), expected.dv) <= rounding);
}

AttentionCase long_case(int64_t length, DType dtype, int64_t head_dim = 64) {
  AttentionCase c{.queries = length, .keys = length, .heads = 8, .kv_heads = 8, .head_dim = head_dim};
  c.dtype = dtype;
  c.options.alibi_slopes = slopes(8);
  return c;
}

TEST_P(GpuAttention, StridedTensorsAndOnesOfOtherPrograms) {
  const AttentionCase c = long_case(300, GetParam());
  const AttentionTensors t(c);
  OnGpu expected(t);
  expected.forward(c.options);
  // q, k and v in one tensor, as one product gives them.
  Tensor together = Tensor::empty({1, 300, 3, 8, 64}, c.dtype, Device::cuda);
  const Shape shape = {1, 300, 8, 64}, strides = {300 * 3 * 512, 3 * 512, 64, 1};
  const auto part = [&](int64_t which) {
    return Tensor::view(static_cast<char*>(together.raw()) + 2 * 512 * which, shape, c.dtype, strides, Device::cuda);
  };
  Tensor q = part(0), k = part(1), v = part(2);
  q.copy_from(t.q);
  k.copy_from(t.k);
  v.copy_from(t.v);
  EXPECT_TRUE(same_bits(attention(q, k, v, c.options).to(Device::cpu), expected.out()));
}

TEST_P(GpuAttention, TheSameBitsRunAfterRun) {
  for (const int64_t head_dim : {64, 128}) {
    AttentionCase c = long_case(3000, GetParam(), head_dim);
    for (const float tolerance : {0.0f, 0x1p-11f}) {
      c.options.tolerance = tolerance;
      const AttentionTensors t(c);
      OnGpu first(t);
      first.both(c.options);
      const std::vector<Tensor> expected = first.all();
      for (int i = 0; i < 8; ++i) {
        OnGpu again(t);
        again.both(c.options);
        const std::vector<Tensor> found = again.all();
        for (size_t n = 0; n < found.size(); ++n) EXPECT_TRUE(same_bits(found[n], expected[n])) << n;
      }
    }
  }
}

TEST_P(GpuAttention, SkipsAboutWhatTheCpuSkips) {
  for (const int64_t length : {2048, 8192}) {
    AttentionCase c = long_case(length, GetParam());
    const AttentionTensors t(c);
    OnGpu run(t);
    run.forward(c.options);
    EXPECT_EQ(count_blocks(run.state()).blocks_visited, count_blocks(run.state()).blocks_total)
        << "tolerance 0 visits every block";
    c.options.tolerance = 0x1p-11f;
    run.forward(c.options);
    AttentionState cpu;
    attention(t.q.to(DType::float32), t.k.to(DType::float32), t.v.to(DType::float32), c.options, &cpu);
    const double on_cpu = static_cast<double>(cpu.stats.blocks_visited) / static_cast<double>(cpu.stats.blocks_total);
    // Tiles are larger, and the bound may be a simpler one.
    EXPECT_GT(run.visited(), 0.9 * on_cpu);
    EXPECT_LT(run.visited(), 1.5 * on_cpu + 0.1) << "at " << length << "; the CPU visits " << on_cpu;
    RecordProperty("visited_" + std::to_string(length), std::to_string(run.visited()));
  }
}

/// out moves by at most 2 t max|v| in a row, and a log-sum-exp by at most t (docs/explanation/skip-rule.md).
TEST_P(GpuAttention, SkippingChangesNoMoreThanIsProven) {
  for (const float tolerance : {0x1p-11f, 0x1p-6f}) {
    for (const bool causal : {true, false}) {
      AttentionCase c = long_case(2048, GetParam());
      c.options.causal = causal;
      const AttentionTensors t(c);
      OnGpu whole(t), skipping(t);
      whole.both(c.options);
      c.options.tolerance = tolerance;
      skipping.both(c.options);
      EXPECT_LT(skipping.visited(), 0.8);
      const double rounding = unit(c.dtype), most = max_abs(t.v.to_floats());
      const double allowed = 2 * static_cast<double>(tolerance) * most;
      EXPECT_TRUE(max_abs_diff(skipping.out(), whole.out()) <= allowed + rounding * max_abs(whole.out().to_floats()));
      EXPECT_TRUE(max_abs_diff(skipping.lse(), whole.lse()) <= 1.01 * static_cast<double>(tolerance) + 2e-5);
      // Gradients together: the mass that may be missing is the tolerance's share.
      const std::pair<Tensor, Tensor> gradients[] = {
          {skipping.dq(), whole.dq()}, {skipping.dk(), whole.dk()}, {skipping.dv(), whole.dv()}};
      for (const auto& [found, expected] : gradients) {
        const std::vector<double> a = doubles(found), b = doubles(expected);
        double change = 0, size = 0;
        for (size_t i = 0; i < a.size(); ++i) {
          change += std::abs(a[i] - b[i]);
          size += std::abs(b[i]);
        }
        EXPECT_TRUE(change <= (6 * static_cast<double>(tolerance) + rounding) * 8 * size) << change << " of " << size;
      }
    }
  }
}

TEST_P(GpuAttention, OutliersAndSinksAreNotSkipped) {
  // The first key has by far the largest score for every query, and its value shows.
  AttentionCase c = long_case(1024, GetParam());
  c.options.tolerance = 0x1p-11f;
  AttentionTensors t(c);
  Tensor sink = t.k.slice(1, 0, 1);
  Tensor first = t.q.slice(3, 0, 1);
  first.fill(8);
  sink.slice(3, 0, 1).fill(200);
  std::vector<double> out;
  attention_reference(t.q, t.k, t.v, c.options, out);
  OnGpu run(t);
  run.forward(c.options);
  EXPECT_TRUE(relative_diff(run.out(), out) <= 4 * unit(c.dtype));
}

TEST_P(GpuAttention, StreamsDoNotMeet) {
  AttentionCase c = long_case(2000, GetParam());
  c.options.tolerance = 0x1p-11f;
  std::vector<AttentionTensors> tensors;
  std::vector<std::vector<Tensor>> expected, found(4);
  for (uint64_t i = 0; i < found.size(); ++i) {
    c.seed = 10 * i + 1;
    tensors.emplace_back(c);
    OnGpu run(tensors.back());
    run.both(c.options);
    expected.push_back(run.all());
  }
  std::vector<std::thread> threads;
  for (size_t i = 0; i < found.size(); ++i) {
    threads.emplace_back([&, i] {
      const OwnStream own;
      const UseStream use(own.get());
      for (int times = 0; times < 5; ++times) {
        OnGpu run(tensors[i]);
        run.both(c.options);
        found[i] = run.all();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (size_t i = 0; i < found.size(); ++i) {
    for (size_t n = 0; n < found[i].size(); ++n) EXPECT_TRUE(same_bits(found[i][n], expected[i][n])) << i << " " << n;
  }
}

TEST_P(GpuAttention, AStateCanBeKeptAsTensors) {
  AttentionCase c = long_case(1000, GetParam());
  c.options.tolerance = 0x1p-11f;
  const AttentionTensors t(c);
  OnGpu run(t);
  run.both(c.options);
  const std::vector<Tensor> expected = run.all();
  const KernelState& kernel = run.state().kernel;
  ASSERT_EQ(kernel.saved_blocks().elements(), KernelState::saved_words(1, 1000, 8, c.options));
  run.state().kernel = KernelState::restore(kernel.saved_lse(), kernel.saved_blocks());
  run.backward(c.options);
  const std::vector<Tensor> found = run.all();
  for (size_t n = 0; n < found.size(); ++n) EXPECT_TRUE(same_bits(found[n], expected[n])) << n;
}

TEST(Gpu, WhatItDoesNotComputeIsAnError) {
  const auto call = [](DType dtype, const AttentionOptions& options, int64_t head_dim = 64) {
    const Tensor x({1, 70, 2, head_dim}, dtype, Device::cuda);
    attention(x, x, x, options);
  };
  EXPECT_NO_THROW(call(DType::bfloat16, {}));
  expect_error([&] { call(DType::float32, {}); }, "'cuda' does not support this call: q is float32");
  expect_error([&] { call(DType::bfloat16, {.dropout_p = 0.5f}); }, "'cuda' does not support this call");
  expect_error([&] { call(DType::bfloat16, {.buckets = random_buckets(2, 1)}); }, "'cuda' does not support this call");
  expect_error([&] { call(DType::bfloat16, {}, 320); }, "'cuda' does not support this call");
}

TEST(Gpu, AnErrorThatAnotherLibraryLeftIsNotOurs) {
  const Tensor q = random_tensor({1, 100, 2, 64}, 1, 1, DType::bfloat16).to(Device::cuda);
  attention(q, q, q);  // the first launch of a kernel asks for shared memory, and that call of CUDA clears errors
  ASSERT_NE(cudaMemcpy(nullptr, nullptr, 8, cudaMemcpyHostToDevice), cudaSuccess);
  EXPECT_NO_THROW(attention(q, q, q).to_floats());
  EXPECT_NE(cudaGetLastError(), cudaSuccess) << "it is still for its library to find";
}

TEST(Gpu, MemoryIsCountedAndGivenBack) {
  const int64_t before = tensor_bytes();
  {
    AttentionCase c = long_case(500, DType::bfloat16);
    c.options.tolerance = 0x1p-11f;
    const AttentionTensors t(c);
    OnGpu run(t);
    run.both(c.options);
    EXPECT_GE(tensor_bytes(), before + 2 * 8 * 500 * 8 * 64 * 2);
  }
  EXPECT_EQ(tensor_bytes(), before);
  expect_error([] { Tensor({int64_t{1} << 50}, DType::bfloat16, Device::cuda); }, "out of memory on the GPU");
  EXPECT_NO_THROW(Tensor({2}, DType::bfloat16, Device::cuda));  // the error is not told again
}

TEST(Gpu, TensorsGoThereAndBack) {
  const std::vector<float> values = {1, -2, 3, 65504, 0x1p-20f, 6};
  const Tensor here = Tensor::from(values, {2, 3});
  Tensor there = here.to(Device::cuda);
  EXPECT_THROW(there.data<float>(), Error);
  EXPECT_EQ(there.to_floats(), values);
  EXPECT_EQ(there.slice(1, 1, 3).to_floats(), (std::vector<float>{-2, 3, 0x1p-20f, 6}));
  for (const DType dtype : {DType::bfloat16, DType::float16}) {
    EXPECT_TRUE(same_bits(there.to(dtype).to(Device::cpu), here.to(dtype))) << name_of(dtype);
    EXPECT_EQ(there.to(dtype).to(DType::float32).to_floats(), here.to(dtype).to_floats());
  }
  Tensor part = there.slice(1, 0, 2);
  part.fill(0.5f);
  EXPECT_EQ(there.to_floats(), (std::vector<float>{0.5f, 0.5f, 3, 0.5f, 0.5f, 6}));
  const std::vector<int32_t> ids = {1, -5, 1 << 30};
  EXPECT_EQ(Tensor::from(ids, {3}).to(Device::cuda).clone().to_ints(), ids);
  EXPECT_EQ(Tensor({3}, DType::float16, Device::cuda).to_floats(), (std::vector<float>{0, 0, 0}));
  EXPECT_EQ(Tensor({0, 3}, DType::float16, Device::cuda).to_floats().size(), 0u);
  EXPECT_EQ(Tensor::from(values, {6}).to(Device::cuda).reshape({3, 2}).slice(0, 1, 2).to(Device::cpu).to_floats(),
            (std::vector<float>{3, 65504}));
}

}  // namespace
}  // namespace alibi::test
