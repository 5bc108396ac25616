// Tensors and attention on a device whose memory the program cannot see.
#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

#include "alibi/alibi.h"
#include "device/fake_device.h"
#include "testing.h"

namespace alibi::test {
namespace {

TEST(Device, IsRefusedWhereTheBuildLacksIt) {
  if (core::device_memories().of(Device::cuda) != nullptr) GTEST_SKIP() << "this build has it";
  try {
    Tensor({2}, DType::float32, Device::cuda);
    FAIL();
  } catch (const Error& error) {
    EXPECT_NE(std::string(error.what()).find("has no device 'cuda'; configure it with -DALIBI_CUDA=ON"),
              std::string::npos)
        << error.what();
  }
}

TEST(Device, TensorsGoThereAndBack) {
  const FakeDevice device;
  const Tensor here = Tensor::from(std::vector<float>{1, 2, 3, 4, 5, 6}, {2, 3});
  Tensor there = here.to(Device::cuda);
  EXPECT_EQ(there.device(), Device::cuda);
  EXPECT_EQ(there.to_floats(), here.to_floats());
  EXPECT_THROW(there.data<float>(), Error);
  // Strides and types change on either side.
  EXPECT_EQ(there.slice(1, 1, 3).to_floats(), (std::vector<float>{2, 3, 5, 6}));
  EXPECT_EQ(there.to(DType::bfloat16).to(Device::cpu).to_floats(), here.to_floats());
  Tensor part = there.slice(1, 0, 2);
  part.copy_from(Tensor::from(std::vector<float>{7, 8, 9, 10}, {2, 2}));
  EXPECT_EQ(there.to_floats(), (std::vector<float>{7, 8, 3, 9, 10, 6}));
  part.fill(0);
  EXPECT_EQ(there.to_floats(), (std::vector<float>{0, 0, 3, 0, 0, 6}));
  Tensor back = Tensor({3, 2}).slice(1, 0, 1);
  back.copy_from(there.slice(0, 0, 1).reshape({3, 1}));
  EXPECT_EQ(back.to_floats(), (std::vector<float>{0, 0, 3}));
  EXPECT_EQ(Tensor({2}, DType::float32, Device::cuda).to_floats(), (std::vector<float>{0, 0}));
}

TEST(Device, MemoryOfOtherProgramsIsSeenThere) {
  const FakeDevice device;
  const Tensor owned = Tensor::from(std::vector<float>{1, 2, 3, 4}, {2, 2}).to(Device::cuda);
  const Tensor seen = Tensor::view(owned.raw(), {2, 1}, DType::float32, {2, 1}, Device::cuda);
  EXPECT_EQ(seen.device(), Device::cuda);
  EXPECT_EQ(seen.to_floats(), (std::vector<float>{1, 3}));
}

TEST(Device, AttentionAndItsGradientsRunThereToTheSameBits) {
  const FakeDevice device;
  const Shape shape{2, 70, 4, 16};
  const Tensor q = random_tensor(shape, 1), k = random_tensor(shape, 2), v = random_tensor(shape, 3);
  const Tensor dout = random_tensor(shape, 4);
  AttentionOptions options;
  options.alibi_slopes = slopes(4);
  options.tolerance = 1e-3f;
  const auto run = [&](Device where) {
    const auto there = [&](const Tensor& tensor) { return tensor.to(where); };
    AttentionState state;
    const Tensor out = attention(there(q), there(k), there(v), options, &state);
    Tensor dq(shape, DType::float32, where), dk = dq.clone(), dv = dq.clone(), dslopes({4}, DType::float32, where);
    attention_backward(there(dout), there(q), there(k), there(v), out, state, options, dq, dk, dv,
                       {.dtable = nullptr, .dslopes = &dslopes});
    std::vector<std::vector<float>> all;
    for (const Tensor* result : std::initializer_list<const Tensor*>{&out, &state.lse, &dq, &dk, &dv, &dslopes})
      all.push_back(result->to_floats());
    return std::pair(all, state.stats.blocks_visited);
  };
  EXPECT_EQ(run(Device::cuda), run(Device::cpu));
  Tensor out(shape);
  EXPECT_THROW(attention(q.to(Device::cuda), k, v, options, out), Error);
}

}  // namespace
}  // namespace alibi::test
