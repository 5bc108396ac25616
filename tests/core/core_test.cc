#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <numeric>
#include <thread>
#include <vector>

#include "alibi/error.h"
#include "alibi/interrupt.h"
#include "alibi/runtime.h"
#include "alibi/tensor.h"
#include "core/files.h"
#include "core/parallel.h"
#include "core/random.h"
#include "hwy/targets.h"
#include "temporary_folder.h"
#include "testing.h"

namespace alibi::core {
namespace {

TEST(Parallel, EveryTaskRunsOnceAndNestedCallsToo) {
  for (const int count : {1, 2, 5}) {
    set_threads(count);
    std::vector<std::atomic<int>> runs(1000);
    parallel_for(10, [&](int64_t outer) {
      parallel_for(100, [&](int64_t inner) { ++runs[static_cast<size_t>(outer * 100 + inner)]; });
    });
    for (const auto& run : runs) EXPECT_EQ(run.load(), 1);
  }
}

TEST(Parallel, TheLowestFailingTaskIsReported) {
  set_threads(4);
  for (int round = 0; round < 50; ++round) {
    const auto fails_from_7 = [](int64_t task) {
      if (task >= 7) throw Error(std::to_string(task));
    };
    EXPECT_EQ(test::message_of([&] { parallel_for(64, fails_from_7); }), "7");
  }
}

TEST(Interrupt, EndsALoopSoonAndRunsEachTaskOnceOtherwise) {
  for (const int count : {1, 3}) {
    set_threads(count);
    int checks = 0;
    std::vector<std::atomic<int>> runs(200);
    {
      const InterruptScope scope([&] {
        ++checks;
        set_threads(count);  // would wait for ever if a loop held the pool
      });
      parallel_for(std::ssize(runs), [&](int64_t task) {
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
        ++runs[static_cast<size_t>(task)];
      });
    }
    EXPECT_GE(checks, 2);
    for (const std::atomic<int>& run : runs) EXPECT_EQ(run, 1);
    std::atomic<int> ran = 0;
    const auto work = [&](int64_t) {
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
      ++ran;
    };
    const InterruptScope scope([] { throw Error("stopped"); });
    EXPECT_EQ(test::message_of([&] { parallel_for(10000, work); }), "stopped");
    EXPECT_LT(ran, 10000);  // hundreds, on a machine that does nothing else
    const InterruptScope none({});
    ran = 0;
    parallel_for(60, work);
    EXPECT_EQ(ran, 60);
  }
}

TEST(Interrupt, IsOfOneThread) {
  const InterruptScope scope([] { throw Error("stopped"); });
  std::thread([] {
    parallel_for(60, [](int64_t) { std::this_thread::sleep_for(std::chrono::milliseconds(2)); });
  }).join();
}

TEST(Threads, OutOfRangeIsAUsageError) {
  EXPECT_THROW(set_threads(0), UsageError);
  EXPECT_THROW(set_threads(2000), UsageError);
}

TEST(Bfloat16, RoundsToNearestEvenAndKeepsNan) {
  EXPECT_EQ(bfloat16(1.0f).bits, 0x3f80);
  EXPECT_EQ(bfloat16(1.00390625f).bits, 0x3f80);  // halfway between 1 and 1 + 2^-7: to even
  EXPECT_EQ(bfloat16(1.01171875f).bits, 0x3f82);  // halfway: to even, upwards
  EXPECT_TRUE(std::isnan(static_cast<float>(bfloat16(std::nanf("")))));
  EXPECT_TRUE(std::isinf(static_cast<float>(bfloat16(INFINITY))));
}

TEST(Random, PhiloxKnownAnswers) {
  // Random123's kat_vectors for philox4x32-10: counter and key all zero, and all ones.
  EXPECT_EQ(Random(0).block(0), (std::array<uint32_t, 4>{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  EXPECT_EQ(Random(~0ull, ~0ull).block(~0ull),
            (std::array<uint32_t, 4>{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
}

TEST(Random, MomentsOfUniformAndNormal) {
  const Random random(3, 5);
  double sum = 0, square = 0, normal_sum = 0, normal_square = 0;
  const int n = 200000;
  for (int i = 0; i < n; ++i) {
    const double u = random.uniform(static_cast<uint64_t>(i));
    const double z = random.normal(static_cast<uint64_t>(i));
    sum += u, square += u * u, normal_sum += z, normal_square += z * z;
  }
  EXPECT_NEAR(sum / n, 0.5, 0.005);
  EXPECT_NEAR(square / n, 1.0 / 3, 0.005);
  EXPECT_NEAR(normal_sum / n, 0, 0.01);
  EXPECT_NEAR(normal_square / n, 1, 0.02);
}

TEST(Random, BelowIsTheHighHalfOfAProduct) {
  __extension__ using Wide = unsigned __int128;
  const Random random(7, 1);
  for (const uint64_t n : {uint64_t{1}, uint64_t{10}, uint64_t{1} << 32, (uint64_t{1} << 40) + 12345, ~uint64_t{0}}) {
    for (uint64_t i = 0; i < 200; ++i) {
      const auto words = random.block(i);
      const uint64_t word = uint64_t{words[0]} << 32 | words[1];
      EXPECT_EQ(random.below(i, n), static_cast<uint64_t>(Wide{word} * n >> 64));
    }
  }
}

TEST(Tensor, SlicesAndStridesShareMemory) {
  std::vector<float> values(24);
  std::iota(values.begin(), values.end(), 0.f);
  const Tensor t = Tensor::from(values, {2, 3, 4});
  const Tensor part = t.slice(1, 1, 3).slice(2, 2, 4);
  EXPECT_FALSE(part.contiguous());
  EXPECT_EQ(part.to_floats(), (std::vector<float>{6, 7, 10, 11, 18, 19, 22, 23}));
  Tensor target = part;
  target.fill(-1);
  EXPECT_EQ(t.data<float>()[6], -1);
  EXPECT_EQ(t.data<float>()[5], 5);
  EXPECT_THROW(part.reshape({8}), Error);
  EXPECT_EQ(t.reshape({4, -1}).shape(), (Shape{4, 6}));
}

TEST(Tensor, WithoutElementsIsContiguousWhateverItsShape) {
  for (const Shape& shape : {Shape{0}, Shape{0, 0}, Shape{3, 0, 2}, Shape{0, 3, 0}}) {
    EXPECT_TRUE(Tensor(shape).contiguous()) << to_string(shape);
    EXPECT_EQ(Tensor(shape).reshape({0}).shape(), Shape{0}) << to_string(shape);
  }
  EXPECT_TRUE(Tensor({4, 3}).slice(0, 2, 2).contiguous());
}

TEST(Tensor, BadShapesAndTypesThrow) {
  EXPECT_THROW(Tensor({2, -1}), Error);
  EXPECT_THROW(Tensor({int64_t{1} << 40, int64_t{1} << 40}), Error);
  EXPECT_THROW(Tensor({0, int64_t{1} << 40, int64_t{1} << 40}), Error);
  EXPECT_THROW(Tensor({2}).data<int32_t>(), Error);
  EXPECT_THROW(Tensor({2}).slice(0, 1, 3), Error);
  EXPECT_THROW(Tensor::from(std::vector<float>{1, 2}, {3}), Error);
}

TEST(Tensor, MemoryIsCounted) {
  const int64_t before = tensor_bytes();
  {
    const Tensor t({1024, 1024});
    EXPECT_EQ(tensor_bytes() - before, 4 << 20);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(t.raw()) % 64, 0u);
  }
  EXPECT_EQ(tensor_bytes(), before);
  EXPECT_GE(peak_tensor_bytes(), before + (4 << 20));
}

TEST(Files, WriteIsWholeOrNothing) {
  const test::TemporaryFolder temporary;
  const auto folder = temporary.path() / "deep" / "folder";
  make_folder(folder);
  write_file(folder / "a", "first");
  EXPECT_THROW(write_file(folder / "a",
                          [](const auto& append) {
                            append("sec");
                            throw Error("stopped");
                          }),
               Error);
  EXPECT_EQ(read_file(folder / "a"), "first");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder), {}), 1);
  const MappedFile mapped(folder / "a");
  EXPECT_EQ(mapped.bytes().size(), 5u);
  EXPECT_THROW(read_file(folder / "missing"), Error);
  EXPECT_THROW(MappedFile{folder}, Error);
  EXPECT_THROW(write_file(folder / "no" / "file", "x"), Error);
}

TEST(Isa, EveryAvailableOneCanBeForced) {
  for (const Isa candidate : available_isas()) {
    set_isa(candidate);
    EXPECT_EQ(isa(), candidate);
    EXPECT_TRUE(hwy::GetChosenTarget().IsInitialized())
        << "kernels of several threads would choose their target at once";
  }
  set_isa(best_isa());
}

}  // namespace
}  // namespace alibi::core
