#include "formats/weight_types.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#include "core/float16.h"
#include "core/random.h"

namespace alibi::formats {
namespace {

std::vector<float> numbers_of(const q8_block& block) {
  std::vector<float> numbers;
  for (const int8_t value : block.values)
    numbers.push_back(static_cast<float>(block.scale) * static_cast<float>(value));
  return numbers;
}

/// A block of random bytes whose scales, at these places, are small numbers.
std::vector<std::byte> random_type_block(const WeightType& type, std::vector<int> scales, uint64_t seed) {
  const core::Random random(seed, 1);
  std::vector<std::byte> block(static_cast<size_t>(type.block_bytes));
  for (size_t i = 0; i < block.size(); ++i) block[i] = static_cast<std::byte>(random.below(i, 256));
  for (const int at : scales) {
    const uint16_t bits = core::float_to_float16(random.uniform(1000 + static_cast<uint64_t>(at)) / 8);
    std::memcpy(&block[static_cast<size_t>(at)], &bits, sizeof bits);
  }
  return block;
}

TEST(WeightTypes, BlocksOfQ8AndQ4StayExactInQ8) {
  for (const char* name : {"Q8_0", "Q4_0"}) {
    const WeightType& type = *weight_type(name);
    for (uint64_t seed = 0; seed < 50; ++seed) {
      const std::vector<std::byte> block = random_type_block(type, {0}, seed);
      std::vector<float> expected(q8_block::size);
      type.decode(block.data(), expected.data());
      q8_block found;
      requantize(type, block.data(), &found);
      EXPECT_EQ(numbers_of(found), expected) << name;
    }
  }
}

TEST(WeightTypes, OtherBlocksAreRoundedToHalfAStep) {
  const std::pair<const char*, std::vector<int>> types[] = {{"Q4_K", {0, 2}}, {"Q5_K", {0, 2}}, {"Q6_K", {208}}};
  for (const auto& [name, scales] : types) {
    const WeightType& type = *weight_type(name);
    for (uint64_t seed = 0; seed < 50; ++seed) {
      const std::vector<std::byte> block = random_type_block(type, scales, seed);
      std::vector<float> expected(256);
      type.decode(block.data(), expected.data());
      std::vector<q8_block> found(256 / q8_block::size);
      requantize(type, block.data(), found.data());
      for (size_t b = 0; b < found.size(); ++b) {
        const std::vector<float> numbers = numbers_of(found[b]);
        float largest = 0;
        for (size_t i = 0; i < numbers.size(); ++i) largest = std::max(largest, std::abs(expected[b * 32 + i]));
        for (size_t i = 0; i < numbers.size(); ++i) {
          // Half a step, and the rounding of the scale to float16.
          const float bound = largest * (0.5f / 127 + 0x1p-11f) + 1e-7f;
          EXPECT_TRUE(std::abs(numbers[i] - expected[b * 32 + i]) <= bound) << name << " block " << b << " at " << i;
        }
      }
    }
  }
}

TEST(WeightTypes, ABlockOfZerosHasTheScaleZero) {
  const std::vector<float> zeros(q8_block::size);
  const q8_block block = quantized(zeros.data());
  EXPECT_EQ(block.scale.bits, 0);
  EXPECT_EQ(numbers_of(block), zeros);
}

}  // namespace
}  // namespace alibi::formats
