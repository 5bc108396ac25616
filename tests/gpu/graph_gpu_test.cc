// Calls captured into CUDA graphs (scripts/gpu-check).
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <utility>

#include "alibi/kv_cache.h"
#include "alibi/stream.h"
#include "attention/cases.h"

namespace alibi {
namespace {

using namespace test;

/// Runs work once, captures it in a stream, replays the graph twice after `change`.
template <class Work, class Change>
void replay(const Work& work, const Change& change) {
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  {
    const UseStream use(stream);
    work();
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t made = nullptr;
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    work();
    ASSERT_EQ(cudaStreamEndCapture(stream, &graph), cudaSuccess);
    ASSERT_EQ(cudaGraphInstantiate(&made, graph, 0), cudaSuccess);
    change();
    for (int i = 0; i < 2; ++i) ASSERT_EQ(cudaGraphLaunch(made, stream), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream), cudaSuccess);
    cudaGraphExecDestroy(made);
    cudaGraphDestroy(graph);
  }
  cudaStreamDestroy(stream);
}

TEST(GpuGraph, PassesAndDecodingCanBeCaptured) {
  const auto random = [](Shape shape, uint64_t seed) {
    return random_tensor(shape, seed, 1, DType::bfloat16).to(Device::cuda);
  };
  const Tensor other = random({2, 700, 4, 64}, 9);
  Tensor q = random(other.shape(), 1), k = random(other.shape(), 2), dout = random(other.shape(), 3);
  Tensor out = q.clone(), dq = q.clone(), dk = q.clone(), dv = q.clone(), expected = q.clone();
  const AttentionOptions options = {.alibi_slopes = slopes(4), .tolerance = 0x1p-11f};
  replay([&] { attention(q, k, k, options, out); }, [&] { q.copy_from(other); });
  attention(q, k, k, options, expected);
  EXPECT_TRUE(same_bits(out.to(Device::cpu), expected.to(Device::cpu)));

  // A forward call with a state in the caller's memory.
  const auto on_gpu = [](Shape shape, DType dtype) { return Tensor::empty(std::move(shape), dtype, Device::cuda); };
  AttentionState lent = {on_gpu({2, 4, 700}, DType::float32), {}, {}};
  lent.kernel = KernelState::in_memory(on_gpu({2, 4, 700}, DType::float32),
                                       on_gpu({KernelState::saved_words(2, 700, 4, options)}, DType::int32));
  q.copy_from(dout);
  replay([&] { attention(q, k, k, options, out, &lent); }, [&] { q.copy_from(other); });
  EXPECT_TRUE(same_bits(out.to(Device::cpu), expected.to(Device::cpu)));

  AttentionState state;
  attention(q, k, k, options, out, &state);
  EXPECT_EQ(lent.lse.to_floats(), state.lse.to_floats());
  replay([&] { attention_backward(dout, q, k, k, out, state, options, dq, dk, dv); }, [&] { dout.copy_from(other); });
  Tensor dk_expected = dk.clone(), dv_expected = dv.clone();
  attention_backward(dout, q, k, k, out, state, options, expected, dk_expected, dv_expected);
  EXPECT_TRUE(same_bits(dq.to(Device::cpu), expected.to(Device::cpu)));
  EXPECT_TRUE(same_bits(dk.to(Device::cpu), dk_expected.to(Device::cpu)));

  KvCache cache(2, 4, 64, DType::bfloat16, Device::cuda);
  cache.append(k, k);
  Tensor one = random({2, 1, 4, 64}, 5), decoded = one.clone();
  replay([&] { attention_decode(one, cache, options, decoded); }, [&] { one.copy_from(other.slice(1, 0, 1)); });
  EXPECT_TRUE(same_bits(decoded.to(Device::cpu), attention_decode(one, cache, options).to(Device::cpu)));
}

TEST(GpuGraph, ACallWithAStateIsRefused) {
  const Tensor q = random_tensor({1, 100, 2, 64}, 1, 1, DType::bfloat16).to(Device::cuda);
  Tensor out = q.clone();
  AttentionState state;
  attention(q, q, q, {}, out, &state);
  cudaStream_t stream = nullptr;
  ASSERT_EQ(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), cudaSuccess);
  {
    const UseStream use(stream);
    AttentionState captured;
    ASSERT_EQ(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    expect_error([&] { attention(q, q, q, {}, out, &captured); }, "cannot be captured into a CUDA graph");
    expect_error([&] { out.to(Device::cpu); }, "cannot be captured into a CUDA graph");
    cudaGraph_t graph = nullptr;
    cudaStreamEndCapture(stream, &graph);
    if (graph != nullptr) cudaGraphDestroy(graph);
    cudaGetLastError();
  }
  cudaStreamDestroy(stream);
}

}  // namespace
}  // namespace alibi
