// Streams and devices of calls on CUDA, tested on the emulated device, which records what is queued in which stream.
#include <array>
#include <map>
#include <set>
#include <utility>

#include "alibi/kv_cache.h"
#include "alibi/stream.h"
#include "attention/cases.h"
#include "attention/cuda/emulated_device.h"
#include "attention/cuda/order.h"

namespace alibi::kernels {
namespace {

using namespace test;

/// The index of the first such event from `begin` on; the number of events if there is none.
size_t find(const char* what, const void* stream, size_t begin = 0) {
  const auto& events = EmulatedDevice::noted().list;
  size_t i = begin;
  while (i < events.size() && (events[i].what != what || events[i].stream != stream)) ++i;
  return i;
}

TEST(AttentionCudaStreams, ACacheFollowsItsCallsFromStreamToStream) {
  const EmulatedDevice device;
  auto& events = EmulatedDevice::noted().list;
  int a = 0, b = 0;  // their addresses stand for streams
  const Tensor rows = random_tensor({1, 40, 2, 32}, 1, 1, DType::bfloat16).to(Device::cuda);
  KvCache cache = [&] {
    const UseStream in_a(&a);
    KvCache made(1, 2, 32, DType::bfloat16, Device::cuda);
    made.append(rows, rows);
    return made;
  }();
  EXPECT_EQ(find("wait", &a), events.size());  // one stream alone waits for nothing
  const UseStream in_b(&b);
  events.clear();
  cache.append(rows.slice(1, 0, 1), rows.slice(1, 0, 1));
  size_t recorded = find("record", &a);
  EXPECT_LT(recorded, events.size());
  EXPECT_LT(recorded, find("wait", &b));
  EXPECT_LT(find("wait", &b), find("copy", &b));  // the keys of stream a are there before b continues
  events.clear();
  cache.append(rows.slice(1, 0, 1), rows.slice(1, 0, 1));
  EXPECT_EQ(find("wait", &b), events.size());  // still stream b
  events.clear();
  cache.reserve(1000);
  // Memory that was allocated in stream a is freed in a, after the copies in b.
  size_t copied = 0;
  for (size_t i = 0; i < events.size(); ++i) {
    if (events[i].what == "copy") copied = i;
  }
  recorded = find("record", &b, copied);
  const size_t freed = find("free", &a);
  ASSERT_LT(freed, events.size());
  EXPECT_LT(copied, recorded);
  EXPECT_LT(find("wait", &a, recorded), freed);
}

TEST(AttentionCudaStreams, TensorsOfAnotherDeviceAreRefused) {
  const EmulatedDevice device;
  const Tensor q = random_tensor({1, 10, 2, 32}, 1, 1, DType::bfloat16).to(Device::cuda), k = q.clone();
  Tensor out = q.clone();
  KvCache cache(1, 2, 32, DType::bfloat16, Device::cuda);
  cache.append(k, k);
  AttentionState state;
  attention(q, k, k, {}, out, &state);
  Tensor dq = q.clone(), dk = q.clone(), dv = q.clone();
  EmulatedDevice::noted().elsewhere = q.raw();
  expect_error([&] { attention(q, k, k, {}, out); }, "q is on GPU 1, but the current GPU is 0");
  expect_error([&] { attention_decode(q, cache, {}, out); }, "q is on GPU 1, but the current GPU is 0");
  EmulatedDevice::noted().elsewhere = dk.raw();
  expect_error([&] { attention_backward(out, q, k, k, out, state, {}, dq, dk, dv); }, "dk is on GPU 1");
}

/// Both passes on the emulated device, with the skip rule.
struct Passes {
  explicit Passes(int64_t length = 300)
      : q(random_tensor({2, length, 4, 32}, 1, 1, DType::bfloat16).to(Device::cuda)) {}
  void forward(bool with_state = true) { attention(q, k, k, options, out, with_state ? &state : nullptr); }
  void backward() { attention_backward(dout, q, k, k, out, state, options, dq, dk, dv); }

  AttentionOptions options = {.alibi_slopes = slopes(4), .tolerance = 0x1p-11f};
  Tensor q, k = q.clone(), out = q.clone(), dout = q.clone(), dq = q.clone(), dk = q.clone(), dv = q.clone();
  AttentionState state;
};

TEST(AttentionCudaStreams, NeitherPassCopiesOrWaits) {
  const EmulatedDevice device;
  auto& events = EmulatedDevice::noted().list;
  Passes passes;
  events.clear();
  passes.forward();
  passes.backward();
  EXPECT_EQ(find("to device", nullptr), events.size());
  EXPECT_EQ(find("to host", nullptr), events.size());
  EXPECT_EQ(passes.state.stats.blocks_total, -1);
  const AttentionStats stats = count_blocks(passes.state);
  EXPECT_LT(find("to host", nullptr), events.size());
  EXPECT_EQ(stats.blocks_total, 2 * 4 * (2 + 4 + 5));
  EXPECT_GT(stats.blocks_visited, 0);
}

TEST(AttentionCudaStreams, ACallWithAStateIsNotCaptured) {
  const EmulatedDevice device;
  Passes passes;
  passes.forward();
  EmulatedDevice::noted().capturing = true;
  EXPECT_NO_THROW(passes.forward(false));
  EXPECT_NO_THROW(passes.backward());
  expect_error([&] { passes.forward(); }, "a call with a state cannot be captured into a CUDA graph");
}

/// With a state in the caller's memory, both passes can be captured, and give the bits of a state of their own.
TEST(AttentionCudaStreams, AStateInTheCallersMemory) {
  const EmulatedDevice device;
  auto& events = EmulatedDevice::noted();
  for (const float tolerance : {0.0f, 0x1p-11f}) {
    Passes own, lent;
    own.options.tolerance = lent.options.tolerance = tolerance;
    own.forward();
    own.backward();
    const auto on_device = [](Shape shape, DType dtype) {
      return Tensor::empty(std::move(shape), dtype, Device::cuda);
    };
    const Tensor lse = on_device({2, 4, 300}, DType::float32), kernel_lse = on_device({2, 4, 300}, DType::float32);
    const Tensor blocks = on_device({KernelState::saved_words(2, 300, 4, lent.options)}, DType::int32);
    events.capturing = true;
    lent.state = {lse, {}, KernelState::in_memory(kernel_lse, blocks)};
    lent.forward();
    lent.state = {lse, {}, KernelState::in_memory(kernel_lse, blocks)};  // nothing is kept but the memory
    lent.backward();
    events.capturing = false;
    EXPECT_EQ(find("to host", nullptr), events.list.size());
    EXPECT_TRUE(same_bits(lent.out.to(Device::cpu), own.out.to(Device::cpu)));
    EXPECT_EQ(lse.to_floats(), own.state.lse.to_floats());
    for (const auto& [found, expected] : {std::pair{&lent.dq, &own.dq}, {&lent.dk, &own.dk}, {&lent.dv, &own.dv}}) {
      EXPECT_TRUE(same_bits(found->to(Device::cpu), expected->to(Device::cpu)));
    }
    if (tolerance > 0) {  // it has the blocks that the forward pass visited
      const int64_t tiles = 2 * 4 * 3;
      const std::vector<int32_t> words = blocks.to_ints(), saved = own.state.kernel.saved_blocks().to_ints();
      EXPECT_TRUE(std::equal(words.begin(), words.begin() + 2 * tiles, saved.begin() + 2));
    }
    expect_error([&] { count_blocks(lent.state); }, "not counted in a state in the caller's memory");
    expect_error([&] { lent.state.kernel.saved_blocks(); }, "saved by keeping that memory");
    events.list.clear();
  }
}

TEST(AttentionCudaStreams, MemoryThatDoesNotFitTheCallIsRefused) {
  const EmulatedDevice device;
  Passes passes;
  const auto on_device = [](Shape shape, DType dtype) { return Tensor::empty(std::move(shape), dtype, Device::cuda); };
  const Tensor lse = on_device({2, 4, 300}, DType::float32), other = on_device({2, 4, 299}, DType::float32);
  const Tensor blocks = on_device({200}, DType::int32), few = on_device({47}, DType::int32);
  passes.state = {lse, {}, KernelState::in_memory(other, blocks)};
  expect_error([&] { passes.forward(); }, "the state's kernel is float32 [2, 4, 299] on 'cuda'");
  passes.state = {{}, {}, KernelState::in_memory(lse, blocks)};
  expect_error([&] { passes.forward(); }, "the state's lse is");
  passes.state = {lse, {}, KernelState::in_memory(lse, few)};
  expect_error([&] { passes.forward(); }, "the state's blocks have 47 words, expected at least 48");
  expect_error([&] { passes.backward(); }, "the state's blocks have 47 words, expected at least 48");
  expect_error([&] { KernelState::in_memory(lse, blocks.to(Device::cpu)); }, "is on 'cuda' and 'cpu'");
  expect_error([&] { KernelState::in_memory(lse, lse); }, "expected contiguous int32 [words]");
  const Tensor q = Tensor({2, 300, 4, 32}, DType::bfloat16);
  Tensor out = q.clone();
  passes.state = {lse, {}, KernelState::in_memory(lse, blocks)};
  expect_error([&] { attention(q, q, q, {}, out, &passes.state); }, "on 'cuda', expected a contiguous float32");
}

/// Every tile has one block of threads, and each class of heads begins with the tiles that probably need the most work.
TEST(AttentionCudaStreams, BlocksOfThreadsCoverAllTilesMostWorkFirst) {
  namespace cuda = kernels::cuda;
  const std::vector<cuda::HeadRank> order = {{2, 0, 2}, {0, 0, 2}, {1, 2, 1}};
  for (const bool uniform : {true, false}) {
    // Of packed sequences the second has no queries, the third no keys.
    std::vector<cuda::SequenceRows> sequences(3);
    const std::vector<int> tiles = uniform ? std::vector{2, 2, 2} : std::vector{3, 0, 2};
    const std::vector<int> blocks = uniform ? std::vector{4, 4, 4} : std::vector{5, 1, 0};
    cuda::Call call = {};
    for (size_t i = 0; i < 3; ++i) {
      sequences[i].tiles_before = call.tiles;
      sequences[i].bounds_before = call.key_units;
      call.tiles += tiles[i];
      call.key_units += blocks[i] + 1;
    }
    call.sequences = sequences.data();
    call.head_order = call.kv_head_order = order.data();
    call.sequence_count = 3;
    call.uniform = uniform;
    std::set<std::array<int, 3>> seen;
    int last = 1 << 30;
    for (int i = 0; i < 3 * call.tiles; ++i) {
      const cuda::Task task = cuda::query_task(call, i);
      EXPECT_LT(task.tile, tiles[static_cast<size_t>(task.sequence)]);
      EXPECT_EQ(task.head == 1, i >= 2 * call.tiles);
      if (i == 2 * call.tiles) last = 1 << 30;
      EXPECT_TRUE(!uniform || task.tile <= last);
      last = task.tile;
      seen.insert({task.sequence, task.head, task.tile});
    }
    EXPECT_EQ(static_cast<int>(seen.size()), 3 * call.tiles);
    seen.clear();
    for (int i = 0; i < 3 * call.key_units * 2; ++i) {
      const cuda::Task task = cuda::key_task(call, i, 2);
      if (task.tile < blocks[static_cast<size_t>(task.sequence)])
        seen.insert({task.sequence, task.head, 2 * task.tile + task.part});
    }
    EXPECT_EQ(static_cast<int>(seen.size()), 3 * (call.key_units - 3) * 2);
    seen.clear();
    call.both_units = uniform ? 3 * 2 : call.key_units;
    std::map<std::pair<int, int>, int> before;  // dq is added from the last keys to the first
    for (int i = 0; i < 3 * call.both_units; ++i) {
      const cuda::Task task = cuda::both_task(call, i);
      if (task.tile >= blocks[static_cast<size_t>(task.sequence)] || task.tile % 2 != 0) continue;
      const auto [at, is_first] = before.insert({{task.sequence, task.head}, task.tile});
      EXPECT_TRUE(is_first || task.tile < at->second);
      at->second = task.tile;
      seen.insert({task.sequence, task.head, task.tile});
    }
    EXPECT_EQ(static_cast<int>(seen.size()), 3 * (uniform ? 6 : 4));
  }
}

}  // namespace
}  // namespace alibi::kernels
