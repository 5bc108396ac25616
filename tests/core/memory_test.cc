#include "core/memory.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstring>

#include "alibi/runtime.h"

namespace alibi::core {
namespace {

constexpr size_t large = size_t{1} << 20;

/// Under sanitizers nothing is kept.
bool keeps() {
  const KeepMemory keep;
  allocate(large, false);
  return kept_bytes() > 0;
}

TEST(KeepMemory, GivesTheSameBlockAgain) {
  if (!keeps()) GTEST_SKIP() << "under sanitizers nothing is kept";
  const KeepMemory keep;
  const void* const first = allocate(large, false).get();
  EXPECT_GE(kept_bytes(), large);
  const auto again = allocate(large - 1000, false);
  EXPECT_EQ(again.get(), first);
  EXPECT_EQ(kept_bytes(), 0u);
}

TEST(KeepMemory, ZerosAreZerosAgain) {
  const KeepMemory keep;
  std::memset(allocate(large, true).get(), 0xff, large);
  const auto again = allocate(large, true);
  const auto* const bytes = static_cast<const unsigned char*>(again.get());
  EXPECT_TRUE(std::all_of(bytes, bytes + large, [](unsigned char byte) { return byte == 0; }));
}

TEST(KeepMemory, NoMoreThanWasInUseAtMost) {
  const KeepMemory keep;
  const auto used = [] { return static_cast<size_t>(tensor_bytes()) + kept_bytes(); };
  const size_t before = used(), slack = 4096;
  { const auto a = allocate(4 * large, false), b = allocate(2 * large, false); }
  EXPECT_LE(used(), before + 6 * large + slack);
  for (size_t size = large; size < 6 * large; size += large / 2) {  // none of them fits the one before
    const auto c = allocate(size, false);
    EXPECT_LE(used(), before + 6 * large + slack);
  }
  const auto d = allocate(6 * large, false);
  EXPECT_LE(used(), before + 6 * large + slack) << "what was kept made room";
}

TEST(KeepMemory, TheLastKeeperTakesItAlong) {
  {
    const KeepMemory outer;
    {
      const KeepMemory inner;
      allocate(large, false);
    }
    EXPECT_EQ(kept_bytes() > 0, keeps());
  }
  EXPECT_EQ(kept_bytes(), 0u);
  allocate(large, false);
  EXPECT_EQ(kept_bytes(), 0u) << "nobody keeps";
}

}  // namespace
}  // namespace alibi::core
