// The tables of the skip rule, as CUDA's kernels compute them in emulated lanes.
#include "attention/cuda/bounds.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "core/random.h"

namespace alibi::kernels::cuda {
namespace {

constexpr size_t numbers = bound_levels + 2;

/// The number-th value of an entry: weights, then the radius and the norm.
float& value_of(KeyBound& entry, size_t number) {
  return number < bound_levels ? entry.weights[number] : number == bound_levels ? entry.radius : entry.norm;
}

/// Runs the kernel for a head. `from` may be empty.
void accumulate(std::vector<KeyBound>& before, std::vector<KeyBound>& from, float slope_before, float slope_after) {
  SequenceRows sequence = {};
  sequence.keys = static_cast<int32_t>(before.size() - 1) * block_keys - 3;
  Slopes slopes = {};
  slopes.before = slope_before;
  slopes.after = slope_after;
  BoundsArguments arguments = {};
  arguments.call.sequences = &sequence;
  arguments.call.slopes = &slopes;
  arguments.call.heads = arguments.call.kv_heads = arguments.call.sequence_count = 1;
  arguments.bounds.before = before.data();
  arguments.bounds.from = from.empty() ? nullptr : from.data();
  ASSERT_EQ(launch<Accumulate<Form::slopes>>(1, arguments, nullptr), 0);
}

void expect_sums(size_t blocks, float slope_before, float slope_after) {
  SCOPED_TRACE(std::to_string(blocks) + " blocks");
  const core::Random random(blocks);
  std::vector<KeyBound> single(blocks);
  for (size_t i = 0; i < blocks; ++i) {
    for (size_t number = 0; number < numbers; ++number) {
      const float value = 6 * std::abs(random.normal(i * numbers + number));
      value_of(single[i], number) = number < bound_levels ? value - 9 : value;
    }
  }
  std::vector<KeyBound> before(blocks + 1), from(blocks + 1);
  std::copy(single.begin(), single.end(), before.begin() + 1);
  std::copy(single.begin(), single.end(), from.begin());
  accumulate(before, from, slope_before, slope_after);

  for (const bool backwards : {false, true}) {
    const double farther = block_keys * static_cast<double>(backwards ? slope_after : slope_before);
    for (size_t number = 0; number < numbers; ++number) {
      double sum = 0, most = 0;  // of the weights, and of the radii or norms
      for (size_t i = 0; i < blocks; ++i) {
        const size_t at = backwards ? blocks - 1 - i : i;
        const auto own = static_cast<double>(value_of(single[at], number));
        sum = sum * std::exp2(-farther) + std::exp2(own);
        most = std::max(most, own);
        const double expected = number < bound_levels ? std::log2(sum) : most;
        const auto found = static_cast<double>(value_of(backwards ? from[at] : before[at + 1], number));
        EXPECT_GE(found, expected) << number << " at " << at;
        EXPECT_LE(found, expected + (number < bound_levels ? 1e-3 : 0)) << number << " at " << at;
      }
    }
  }
}

TEST(BoundsCuda, SumsOverTheBlocksBeforeAndFromABlockOn) {
  for (const size_t blocks : {1, 2, 31, 32, 33, 64, 65, 100, 333}) {
    expect_sums(blocks, 0.02f, 0.005f);
    expect_sums(blocks, 0.0f, 1.5f);
  }
}

TEST(BoundsCuda, ABlockWithoutABoundLeavesNoneBeyondIt) {
  constexpr size_t blocks = 70, without = 21;
  std::vector<KeyBound> before(blocks + 1), none;
  for (float& weight : before[without + 1].weights) weight = std::numeric_limits<float>::infinity();
  accumulate(before, none, 0.5f, 0);
  for (size_t i = 0; i < blocks; ++i) EXPECT_EQ(std::isinf(before[i + 1].weights[0]), i >= without) << i;
}

}  // namespace
}  // namespace alibi::kernels::cuda
