// Streams and devices of the calls on CUDA, on the emulated device, which notes what is queued where.
#include "alibi/kv_cache.h"
#include "alibi/stream.h"
#include "attention/cases.h"
#include "attention/cuda/emulated_device.h"

namespace alibi {
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
  EXPECT_LT(find("wait", &b), find("copy", &b));  // the keys of stream a are there before b goes on
  events.clear();
  cache.append(rows.slice(1, 0, 1), rows.slice(1, 0, 1));
  EXPECT_EQ(find("wait", &b), events.size());  // still stream b
  events.clear();
  cache.reserve(1000);
  // What stream a allocated is freed in a, after the copies in b.
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
  expect_error([&] { attention(q, k, k, {}, out); }, "q lies on GPU 1, but GPU 0 is current");
  expect_error([&] { attention_decode(q, cache, {}, out); }, "q lies on GPU 1, but GPU 0 is current");
  EmulatedDevice::noted().elsewhere = dk.raw();
  expect_error([&] { attention_backward(out, q, k, k, out, state, {}, dq, dk, dv); }, "dk lies on GPU 1");
}

}  // namespace
}  // namespace alibi
